// Propagation of the predictions of a network per node over a graph with injected nodes.
//
// The clean graph, with a self-loop per node, does not change between calls, so injected nodes and
// their edges come apart from it. Rows are padded with 0 to W numbers. All edges have weight 1 and
// are undirected, and A is D^-1/2 (A + I) D^-1/2 of the whole graph.

#pragma once

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "edges.h"

struct Injected {
  int64_t nodes;
  int64_t targets;
  const int64_t* target;   // number of each target node
  const uint8_t* chosen;   // [nodes, targets]: 1 where an injected node has an edge to a target
  int64_t links;
  const int64_t* link;     // [2, links]: edges among injected nodes, numbered from 0
};

template <int W>
class Propagation {
 public:
  using Row = Real[W];

  Propagation(const Edges& g, const Real* degree, const Real* local, const Injected& added,
              const Real* added_local)
      : g_(g), n_(g.nodes), size_(g.nodes + added.nodes), scale_(size_, Real(1)) {
    for (int64_t i = 0; i < added.nodes; ++i)
      for (int64_t j = 0; j < added.targets; ++j)
        if (added.chosen[i * added.targets + j]) pairs_.emplace_back(n_ + i, added.target[j]);
    for (int64_t l = 0; l < added.links; ++l)
      pairs_.emplace_back(n_ + added.link[l], n_ + added.link[added.links + l]);
    std::copy(degree, degree + n_, scale_.begin());
    for (const auto& [u, v] : pairs_) ++scale_[u], ++scale_[v];
    for (Real& s : scale_) s = 1 / std::sqrt(s);
    local_.resize(size_ * W);
    std::copy(local, local + n_ * W, local_.begin());
    std::copy(added_local, added_local + added.nodes * W, local_.begin() + n_ * W);
    scaled_.resize(size_ * W);
    sums_.resize(size_ * W);
  }

  // sum over k of weight_k A^k H.
  std::vector<Real> polynomial(const Real* weight, int64_t count) {
    std::vector<Real> z = local_, out(size_ * W);
    for (int64_t i = 0; i < size_ * W; ++i) out[i] = weight[0] * z[i];
    for (int64_t k = 1; k < count; ++k) {
      sum_neighbours(z);
      for (int64_t u = 0; u < size_; ++u)
        for (int c = 0; c < W; ++c) {
          z[u * W + c] = scale_[u] * sums_[u * W + c];
          out[u * W + c] += weight[k] * z[u * W + c];
        }
    }
    return out;
  }

  // The steps of models.propagating.ElasticGNN, with a dual per undirected edge.
  std::vector<Real> elastic(Real lambda1, Real lambda2, int64_t steps) {
    const Real gamma = 1 / (1 + lambda2), inverse = 1 / (2 * gamma), limit = lambda1 * lambda1;
    std::vector<std::pair<int64_t, int64_t>> edges = pairs_;
    for (int64_t u = 0; u < n_; ++u)
      for (int64_t e = g_.rowptr[u]; e < g_.rowptr[u + 1]; ++e)
        if (g_.source[e] > u) edges.emplace_back(u, g_.source[e]);
    std::vector<Real> z = local_, dual(edges.size() * W), at_nodes(size_ * W), ahead(size_ * W);
    for (int64_t step = 0; step < steps; ++step) {
      sum_neighbours(z);
      for (int64_t u = 0; u < size_; ++u)
        for (int64_t i = u * W; i < (u + 1) * W; ++i) {
          z[i] = gamma * local_[i] + (1 - gamma) * scale_[u] * sums_[i];
          ahead[i] = scale_[u] * (z[i] - gamma * scale_[u] * at_nodes[i]);
        }
      std::fill(at_nodes.begin(), at_nodes.end(), Real(0));
      for (size_t e = 0; e < edges.size(); ++e) {
        Real *d = &dual[e * W], *at_u = &at_nodes[edges[e].first * W];
        Real* at_v = &at_nodes[edges[e].second * W];
        const Real *from = &ahead[edges[e].first * W], *to = &ahead[edges[e].second * W];
        Real squared = 0;
        for (int c = 0; c < W; ++c) d[c] += inverse * (from[c] - to[c]);
        for (int c = 0; c < W; ++c) squared += d[c] * d[c];
        const Real shrink = squared > limit ? lambda1 / std::sqrt(squared) : Real(1);
        for (int c = 0; c < W; ++c) d[c] *= shrink;
        for (int c = 0; c < W; ++c) at_u[c] += d[c];
        for (int c = 0; c < W; ++c) at_v[c] -= d[c];
      }
      for (int64_t u = 0; u < size_; ++u)
        for (int64_t i = u * W; i < (u + 1) * W; ++i) z[i] -= gamma * scale_[u] * at_nodes[i];
    }
    return z;
  }

 private:
  // sums_[u] = sum over the neighbours v of u, and u itself, of z_v / sqrt(d_v).
  void sum_neighbours(const std::vector<Real>& z) {
    for (int64_t u = 0; u < size_; ++u)
      for (int c = 0; c < W; ++c) scaled_[u * W + c] = scale_[u] * z[u * W + c];
    for (int64_t u = 0; u < n_; ++u) {
      Row sum = {};
      for (int64_t e = g_.rowptr[u]; e < g_.rowptr[u + 1]; ++e)
        for (int c = 0; c < W; ++c) sum[c] += scaled_[int64_t(g_.source[e]) * W + c];
      std::memcpy(&sums_[u * W], sum, sizeof(Row));
    }
    std::copy(scaled_.begin() + n_ * W, scaled_.end(), sums_.begin() + n_ * W);
    for (const auto& [u, v] : pairs_)
      for (int c = 0; c < W; ++c) {
        sums_[u * W + c] += scaled_[v * W + c];
        sums_[v * W + c] += scaled_[u * W + c];
      }
  }

  const Edges& g_;
  int64_t n_, size_;
  std::vector<Real> scale_, local_, scaled_, sums_;
  std::vector<std::pair<int64_t, int64_t>> pairs_;
};

// Writes the propagated rows of the targets; elastic if there are no weights of powers.
template <int W>
void propagate_rows(const Edges& g, const Real* degree, const Real* local, const Injected& added,
                    const Real* added_local, const Real* weight, int64_t count, Real lambda1,
                    Real lambda2, Real* out) {
  Propagation<W> whole(g, degree, local, added, added_local);
  const std::vector<Real> z =
      weight ? whole.polynomial(weight, count) : whole.elastic(lambda1, lambda2, count);
  for (int64_t j = 0; j < added.targets; ++j)
    std::memcpy(out + j * W, &z[added.target[j] * W], sizeof(Real) * W);
}
