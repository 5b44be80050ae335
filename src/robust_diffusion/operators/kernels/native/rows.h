// Sums over the rows of a block of nodes, forward and backward.
//
// Notation: u is the destination and v the source of an edge e, w its weight, and d_x the gradient
// of the loss by x. Node features are rows of a multiple of LANES numbers; keys and queries have
// the head as their last index, so that one vector holds the products of all heads.
//
// Rows are short, and each loop over one costs a mispredicted branch: what does not sum over a row
// runs over all edges of the block.

#pragma once

#include <cmath>

#include "edges.h"
#include "softmax.h"

struct Projections {
  const Real* key;
  const Real* query;
  const Real* bias;  // added to the keys; null for none
  int64_t stride;    // from one node to the next
  int64_t channels;  // of all heads
  double scale;      // of their dot products
};

// Scores of the modulation are g_u^left g_v^right, g the gradient norm.
struct Modulation {
  Real left;
  Real right;
  Real floor;
  Real ceiling;
  bool residual;     // the norm of the authors' code instead of the text's
  int64_t channels;  // that count in it; those above are padding
};

// out[e, h] = scale <key_u, query_v>, or that much more
template <int heads>
inline void score_rows(const Edges& g, int64_t first, int64_t last, const Projections& p,
                       Real* out, bool add = false) {
  for_channels(p.channels, [&](int64_t channel, auto count) {
    for (int64_t u = first; u < last; ++u) {
      Vector<LANES> key[count];
      for (int i = 0; i < count; ++i) {
        key[i] = load(p.key + u * p.stride + channel + i * LANES);
        if (p.bias) key[i] += load(p.bias + channel + i * LANES);
        key[i] = key[i] * Real(p.scale);
      }
      for (int64_t e = g.rowptr[u]; e < g.rowptr[u + 1]; ++e) {
        fetch(p.query + g.source[e + AHEAD] * p.stride + channel, count);
        const Real* query = p.query + g.source[e] * p.stride + channel;
        Vector<LANES> product = key[0] * load(query);
        for (int i = 1; i < count; ++i) product += key[i] * load(query + i * LANES);
        Vector<heads> score = fold<heads>(product);
        if (channel || add) score += load<heads>(out + e * heads);
        store(out + e * heads, score);
      }
    }
  });
}

// out_u = sum over entries of value[j, h] (x_v + bias), the bias null for none; if there are heads,
// LANES numbers follow the values.
template <int heads>
inline void multiply_rows(const Order& s, int64_t first, int64_t last, const Real* value,
                          const Real* x, int64_t stride, int64_t channels, Real* out,
                          int64_t out_stride, const Real* bias = nullptr) {
  for_channels(channels, [&](int64_t channel, auto count) {
    for (int64_t u = first; u < last; ++u) {
      Vector<LANES> total[count] = {}, added[count] = {};
      if (bias)
        for (int i = 0; i < count; ++i) added[i] = load(bias + channel + i * LANES);
      for (int64_t j = s.pointers[u]; j < s.pointers[u + 1]; ++j) {
        fetch(x + s.columns[j + AHEAD] * stride + channel, count);
        const int64_t e = s.order ? s.order[j] : j;
        const Vector<LANES> factor = spread<heads>(value + e * heads);
        const Real* x_v = x + s.columns[j] * stride + channel;
        for (int i = 0; i < count; ++i)
          total[i] += factor * (load(x_v + i * LANES) + added[i]);
      }
      for (int i = 0; i < count; ++i) store(out + u * out_stride + channel + i * LANES, total[i]);
    }
  });
}

// attention[e] = w times the mean over heads of relative[e, h]
template <int heads>
inline void attend_rows(const Edges& g, int64_t first, int64_t last, const Projections& p,
                        const Real* weight, Real* relative, Real* attention) {
  score_rows<heads>(g, first, last, p, relative);
  softmax_rows<heads>(g, first, last, weight, relative);
  for (int64_t e = g.rowptr[first]; e < g.rowptr[last]; ++e) {
    const Real total = fold<1, heads>(load<heads>(relative + e * heads));
    attention[e] = weight[e] * total * (1 / Real(heads));
  }
}

// Gradients of the rows' scores and keys; d_weight, unless null, is added to.
template <int heads>
inline void attend_rows_backward(const Edges& g, int64_t first, int64_t last,
                                 const Projections& p, const Real* weight, const Real* relative,
                                 const Real* d_attention, Real* d_scores, Real* d_key,
                                 int64_t d_stride, Real* d_weight) {
  Vector<heads> mean[BLOCK];
  for (int64_t u = first; u < last; ++u) {
    Vector<heads> total{};
    for (int64_t e = g.rowptr[u]; e < g.rowptr[u + 1]; ++e)
      total += weight[e] * d_attention[e] * load<heads>(relative + e * heads);
    mean[u - first] = total;
  }
  for (int64_t e = g.rowptr[first]; e < g.rowptr[last]; ++e) {
    const Vector<heads> share = load<heads>(relative + e * heads) * (1 / Real(heads));
    const Vector<heads> centred = share * (d_attention[e] - mean[g.destination[e] - first]);
    store(d_scores + e * heads, Real(p.scale) * weight[e] * centred);
    if (d_weight) d_weight[e] += fold<1, heads>(centred);
  }
  multiply_rows<heads>(by_destination(g), first, last, d_scores, p.query, p.stride, p.channels,
                       d_key, d_stride);
}

// Gradient norms g_u. In `difference`, for the backward pass: |z_v - z_u|^2 of every edge.
inline void norm_rows(const Edges& g, int64_t first, int64_t last, const Modulation& m,
                      const Real* attention, const Real* z, int64_t channels, Real* difference,
                      Real* norm) {
  for_channels(channels, [&](int64_t channel, auto count) {
    for (int64_t u = first; u < last; ++u) {
      Vector<LANES> z_u[count];
      for (int i = 0; i < count; ++i) z_u[i] = load(z + u * channels + channel + i * LANES);
      Real squared = m.floor;  // with the channels so far; the last ones complete it
      for (int64_t e = g.rowptr[u]; e < g.rowptr[u + 1]; ++e) {
        fetch(z + g.source[e + AHEAD] * channels + channel, count);
        const Real* z_v = z + g.source[e] * channels + channel;
        Vector<LANES> total{};
        for (int i = 0; i < count; ++i) {
          const Vector<LANES> apart = load(z_v + i * LANES) - z_u[i];
          total += apart * apart;
        }
        difference[e] = (channel ? difference[e] : 0) + sum(total);
        squared += attention[e] * difference[e];
      }
      norm[u] = std::sqrt(squared > m.ceiling ? m.ceiling : squared);
    }
  });
}

inline Real clamp(Real x, Real floor, Real ceiling) {
  x = x < floor ? floor : x;
  return x > ceiling ? ceiling : x;
}

// The same in the authors' code's variant. In `difference`: (A z - z)_u of every node.
inline void residual_norm_rows(const Edges& g, int64_t first, int64_t last, const Modulation& m,
                               const Real* attention, const Real* z, int64_t channels,
                               Real* difference, Real* norm) {
  multiply_rows<1>(by_destination(g), first, last, attention, z, channels, channels, difference,
                   channels);
  for (int64_t u = first; u < last; ++u) {
    Real* residual = difference + u * channels;
    const Real* z_u = z + u * channels;
    const Real squared = sum_over(m.channels, [=](int64_t i) {
      residual[i] -= z_u[i];
      return clamp(residual[i] * residual[i], m.floor, m.ceiling);
    });
    norm[u] = std::sqrt(squared);
  }
}

// out_u = sum over v of flow_uv (z_v - z_u)
inline void diffuse_rows(const Edges& g, int64_t first, int64_t last, const Real* flow,
                         const Real* z, int64_t channels, Real* out) {
  for_channels(channels, [&](int64_t channel, auto count) {
    for (int64_t u = first; u < last; ++u) {
      Vector<LANES> z_u[count], total[count] = {};
      for (int i = 0; i < count; ++i) z_u[i] = load(z + u * channels + channel + i * LANES);
      for (int64_t e = g.rowptr[u]; e < g.rowptr[u + 1]; ++e) {
        fetch(z + g.source[e + AHEAD] * channels + channel, count);
        const Real* z_v = z + g.source[e] * channels + channel;
        for (int i = 0; i < count; ++i) total[i] += flow[e] * (load(z_v + i * LANES) - z_u[i]);
      }
      for (int i = 0; i < count; ++i) store(out + u * channels + channel + i * LANES, total[i]);
    }
  });
}

// d_flow[e] = <d_out_u, z_v - z_u>; and for the gradient norm mean_u = sum of A_uv (z_v - z_u)
inline void diffuse_rows_backward(const Edges& g, int64_t first, int64_t last,
                                  const Real* attention, const Real* z, int64_t channels,
                                  const Real* d_out, Real* d_flow, Real* mean) {
  for_channels(channels, [&](int64_t channel, auto count) {
    for (int64_t u = first; u < last; ++u) {
      Vector<LANES> z_u[count], d_out_u[count], total[count] = {};
      for (int i = 0; i < count; ++i) {
        z_u[i] = load(z + u * channels + channel + i * LANES);
        d_out_u[i] = load(d_out + u * channels + channel + i * LANES);
      }
      for (int64_t e = g.rowptr[u]; e < g.rowptr[u + 1]; ++e) {
        fetch(z + g.source[e + AHEAD] * channels + channel, count);
        const Real* z_v = z + g.source[e] * channels + channel;
        Vector<LANES> product{};
        for (int i = 0; i < count; ++i) {
          const Vector<LANES> apart = load(z_v + i * LANES) - z_u[i];
          product += d_out_u[i] * apart;
          total[i] += attention[e] * apart;
        }
        d_flow[e] = (channel ? d_flow[e] : 0) + sum(product);
      }
      for (int i = 0; i < count; ++i) store(mean + u * channels + channel + i * LANES, total[i]);
    }
  });
}

// d_z_v += sum over u of pull[e, 0] d_out_u + pull[e, 1] (z_v - z_u), or with d_residual_u in place
// of the difference.
template <bool residual>
inline void pull_back_rows(const Edges& g, int64_t first, int64_t last, const Real* pull,
                           const Real* d_out, const Real* z_or_d_residual, int64_t channels,
                           Real* d_z) {
  for_channels(channels, [&](int64_t channel, auto count) {
    for (int64_t v = first; v < last; ++v) {
      const int64_t at_v = v * channels + channel;
      Vector<LANES> total[count], z_v[count];
      for (int i = 0; i < count; ++i) {
        total[i] = load(d_z + at_v + i * LANES);
        if constexpr (!residual) z_v[i] = load(z_or_d_residual + at_v + i * LANES);
      }
      for (int64_t j = g.colptr[v]; j < g.colptr[v + 1]; ++j) {
        const int64_t ahead = g.target[j + AHEAD] * channels + channel;
        fetch(d_out + ahead, count);
        fetch(z_or_d_residual + ahead, count);
        const int64_t at_u = g.target[j] * channels + channel;
        const Real* pulls = pull + 2 * int64_t(g.order[j]);
        for (int i = 0; i < count; ++i) {
          Vector<LANES> second = load(z_or_d_residual + at_u + i * LANES);
          if constexpr (!residual) second = z_v[i] - second;
          total[i] += pulls[0] * load(d_out + at_u + i * LANES) + pulls[1] * second;
        }
      }
      for (int i = 0; i < count; ++i) store(d_z + at_v + i * LANES, total[i]);
    }
  });
}
