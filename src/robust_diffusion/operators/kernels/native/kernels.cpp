// Sums over the edges of a graph, forward and backward, for one type of number. The equations
// stand in operators/edges.py, operators/attention.py and operators/diffusion.py.
//
// Every value is written by one thread and summed in one order, so that results do not depend on
// the number of threads. d_x is the gradient of the loss by x.

#include <cmath>
#include <limits>

#include "edges.h"
#include "propagation.h"
#include "rows.h"
#include "softmax.h"
#include "vectors.h"

namespace {

constexpr Real SMALLEST_LENGTH = Real(1e-12);

// As Python passes it, with numbers of one type whatever Real is.
struct Options {
  double left, right, floor, ceiling;
  int64_t residual, channels;
};

Modulation modulation_of(const Options& o) {
  return {Real(o.left),    Real(o.right),   Real(o.floor),
          Real(o.ceiling), o.residual != 0, o.channels};
}

// Through the diffusion and the softmax of B: gradients by the attention, the scores of B and g_u.
// d_z keeps the sum of A_uv (z_v - z_u), and pull[e, 0] is what flows along an edge.
void modulation_backward(const Edges& g, int64_t first, int64_t last, const Modulation& m,
                         const Real* weight, const Real* z, int64_t channels,
                         const Real* attention, const Real* modulation, const Real* left,
                         const Real* right, const Real* norm, const Real* d_out, Real* d_z,
                         Real* pull, Real* inflow, Real* d_attention, Real* d_modulation,
                         Real* d_norm, Real* d_weight) {
  const int64_t begin = g.rowptr[first], end = g.rowptr[last];
  Real* d_flow = d_attention;
  diffuse_rows_backward(g, first, last, attention, z, channels, d_out, d_flow, d_z);
  for (int64_t e = begin; e < end; ++e)
    pull[2 * e] = attention[e] * emphasis(weight[e]) * modulation[e];
  Real mean[BLOCK];
  for (int64_t u = first; u < last; ++u) {
    inflow[u] = mean[u - first] = 0;
    for (int64_t e = g.rowptr[u]; e < g.rowptr[u + 1]; ++e) {
      inflow[u] += pull[2 * e];
      mean[u - first] += pull[2 * e] * d_flow[e];
    }
  }
  // In a loop of its own, so that the compiler contracts the same product below whatever w is.
  for (int64_t e = begin; e < end; ++e)
    d_modulation[e] = share(weight[e]) * mean[g.destination[e] - first];
  for (int64_t e = begin; e < end; ++e) {
    const Real factor = emphasis(weight[e]);
    const Real apart = attention[e] * d_flow[e] - d_modulation[e];
    d_modulation[e] = factor * modulation[e] * apart;
    const Real by_weight = weight[e] > 1 ? apart : -mean[g.destination[e] - first];
    if (d_weight) d_weight[e] = modulation[e] * by_weight;
    d_attention[e] = d_flow[e] * factor * modulation[e];
  }
  for (int64_t u = first; u < last; ++u) {
    Real by_left = 0;
    if (m.left != 0)
      for (int64_t e = g.rowptr[u]; e < g.rowptr[u + 1]; ++e)
        by_left += d_modulation[e] * right[g.source[e]];
    d_norm[u] = by_left * m.left * left[u] / norm[u];
  }
}

// Through g^2 to the attention and the features at the destination; d_squared is twice the gradient
// by g^2, and pull[e, 1] what an edge pulls by to diminish it.
void norm_backward(const Edges& g, int64_t first, int64_t last, const Real* attention,
                   int64_t channels, const Real* difference, const Real* d_squared,
                   const Real* inflow, const Real* d_out, Real* d_z, Real* pull,
                   Real* d_attention) {
  for (int64_t u = first; u < last; ++u)
    for (int64_t i = u * channels; i < (u + 1) * channels; ++i)
      d_z[i] = -d_squared[u] * d_z[i] - inflow[u] * d_out[i];
  for (int64_t e = g.rowptr[first]; e < g.rowptr[last]; ++e) {
    const Real d_squared_u = d_squared[g.destination[e]];
    d_attention[e] += d_squared_u / 2 * difference[e];
    pull[2 * e + 1] = d_squared_u * attention[e];
  }
}

// The same in the authors' code's variant.
void residual_norm_backward(const Edges& g, int64_t first, int64_t last, const Modulation& m,
                            const Real* attention, const Real* z, int64_t channels,
                            const Real* residual, const Real* d_squared, const Real* inflow,
                            const Real* d_out, Real* d_residual, Real* d_z, Real* pull,
                            Real* d_attention) {
  for (int64_t u = first; u < last; ++u) {
#pragma omp simd
    for (int64_t i = u * channels; i < (u + 1) * channels; ++i) {
      const Real squared = residual[i] * residual[i];
      const Real above = squared < m.floor ? 0 : residual[i];
      d_residual[i] = d_squared[u] * (squared > m.ceiling ? 0 : above);
      d_z[i] = -d_residual[i] - inflow[u] * d_out[i];
    }
  }
  score_rows<1>(g, first, last, {d_residual, z, nullptr, channels, channels, 1}, d_attention, true);
  for (int64_t e = g.rowptr[first]; e < g.rowptr[last]; ++e) pull[2 * e + 1] = attention[e];
}

}  // namespace

extern "C" {

// out[e, h] = scale <key_u, query_v>
void scores(const Edges* edges, int64_t heads, const Projections* projections, Real* out) {
  with_heads(heads, [&](auto count) {
    for_blocks(*edges, [&](int64_t first, int64_t last) {
      score_rows<count>(*edges, first, last, *projections, out);
    });
  });
}

// `relative` holds the scores at first.
void softmax_forward(const Edges* edges, int64_t heads, const Real* weight, Real* relative) {
  with_heads(heads, [&](auto count) {
    for_blocks(*edges, [&](int64_t first, int64_t last) {
      softmax_rows<count>(*edges, first, last, weight, relative);
    });
  });
}

void attention_forward(const Edges* edges, int64_t heads, const Projections* projections,
                       const Real* weight, Real* relative, Real* attention) {
  with_heads(heads, [&](auto count) {
    for_blocks(*edges, [&](int64_t first, int64_t last) {
      attend_rows<count>(*edges, first, last, *projections, weight, relative, attention);
    });
  });
}

// d_weight, unless null, is added to.
void attention_backward(const Edges* edges, int64_t heads, const Projections* projections,
                        const Real* weight, const Real* relative, const Real* d_attention,
                        Real* d_key, Real* d_query, int64_t d_stride, Real* d_weight) {
  const Edges& g = *edges;
  const Projections& p = *projections;
  const auto d_scores = buffer(g.count() * heads + LANES);
  with_heads(heads, [&](auto count) {
    for_blocks(g, [&](int64_t first, int64_t last) {
      attend_rows_backward<count>(g, first, last, p, weight, relative, d_attention, d_scores.get(),
                                  d_key, d_stride, d_weight);
    });
    for_blocks(g, [&](int64_t first, int64_t last) {
      multiply_rows<count>(by_source(g), first, last, d_scores.get(), p.key, p.stride, p.channels,
                           d_query, d_stride, p.bias);
    });
  });
}

// out_u = sum over v of A_uv B_uv (z_v - z_u), A the attention and B = max(w, 1) modulation.
void modulated_forward(const Edges* edges, int64_t heads, const Projections* projections,
                       const Options* options, const Real* weight, const Real* z,
                       int64_t channels, Real* relative, Real* attention, Real* difference,
                       Real* norm, Real* modulation, Real* out) {
  const Edges& g = *edges;
  const Modulation m = modulation_of(*options);
  const auto left = buffer(g.nodes), right = buffer(g.nodes), flow = buffer(g.count());
  const auto norms = m.residual ? residual_norm_rows : norm_rows;
  with_heads(heads, [&](auto count) {
    for_blocks(g, [&](int64_t first, int64_t last) {
      attend_rows<count>(g, first, last, *projections, weight, relative, attention);
      norms(g, first, last, m, attention, z, channels, difference, norm);
      for (int64_t u = first; u < last; ++u) {
        left[u] = power(norm[u], m.left);
        right[u] = power(norm[u], m.right);
      }
    });
  });
  // The largest that `right` can be, since g^2 is at least the floor.
  const Real infinity = std::numeric_limits<Real>::infinity();
  const Real highest = m.right > 0 ? infinity : std::pow(m.floor, m.right / 2);
  for_blocks(g, [&](int64_t first, int64_t last) {
    const int64_t begin = g.rowptr[first], end = g.rowptr[last];
#pragma omp simd
    for (int64_t e = begin; e < end; ++e)
      modulation[e] = left[g.destination[e]] * right[g.source[e]];
    const bool any_extreme = !none_extreme(weight + begin, end - begin);
    for (int64_t u = first; u < last; ++u)
      if (any_extreme || left[u] * highest > HARMLESS) subtract_peak<1>(g, u, weight, modulation);
    normalize_rows<1>(g, first, last, weight, modulation);
    for (int64_t e = begin; e < end; ++e)
      flow[e] = attention[e] * emphasis(weight[e]) * modulation[e];
    diffuse_rows(g, first, last, flow.get(), z, channels, out);
  });
}

void modulated_backward(const Edges* edges, int64_t heads, const Projections* projections,
                        const Options* options, const Real* weight, const Real* z,
                        int64_t channels, const Real* relative, const Real* attention,
                        const Real* difference, const Real* norm, const Real* modulation,
                        const Real* d_out, Real* d_z, Real* d_key, Real* d_query,
                        int64_t d_stride, Real* d_weight) {
  const Edges& g = *edges;
  const Projections& p = *projections;
  const Modulation m = modulation_of(*options);
  const auto left = buffer(g.nodes), right = buffer(g.nodes);
  const auto d_norm = buffer(g.nodes), d_squared = buffer(g.nodes), inflow = buffer(g.nodes);
  const auto d_attention = buffer(g.count()), d_modulation = buffer(g.count());
  const auto pull = buffer(2 * g.count()), d_scores = buffer(g.count() * heads + LANES);
  const auto d_residual = buffer(m.residual ? g.nodes * channels : 0);
  for (int64_t u = 0; u < g.nodes; ++u) {
    left[u] = power(norm[u], m.left);
    right[u] = power(norm[u], m.right);
  }
  for_blocks(g, [&](int64_t first, int64_t last) {
    modulation_backward(g, first, last, m, weight, z, channels, attention, modulation, left.get(),
                        right.get(), norm, d_out, d_z, pull.get(), inflow.get(), d_attention.get(),
                        d_modulation.get(), d_norm.get(), d_weight);
  });
  // Through the powers and the square root of g.
  for_blocks(g, [&](int64_t first, int64_t last) {
    const Real highest = std::sqrt(m.ceiling);
    for (int64_t v = first; v < last; ++v) {
      Real by_right = 0;
      for (int64_t j = g.colptr[v]; j < g.colptr[v + 1]; ++j)
        by_right += d_modulation[g.order[j]] * left[g.target[j]];
      d_norm[v] += by_right * m.right * right[v] / norm[v];
      d_squared[v] = !m.residual && norm[v] == highest ? 0 : d_norm[v] / norm[v];
    }
  });
  with_heads(heads, [&](auto count) {
    for_blocks(g, [&](int64_t first, int64_t last) {
      if (m.residual)
        residual_norm_backward(g, first, last, m, attention, z, channels, difference,
                               d_squared.get(), inflow.get(), d_out, d_residual.get(), d_z,
                               pull.get(), d_attention.get());
      else
        norm_backward(g, first, last, attention, channels, difference, d_squared.get(),
                      inflow.get(), d_out, d_z, pull.get(), d_attention.get());
      attend_rows_backward<count>(g, first, last, p, weight, relative, d_attention.get(),
                                  d_scores.get(), d_key, d_stride, d_weight);
    });
    // To the features at the source and the queries.
    for_blocks(g, [&](int64_t first, int64_t last) {
      if (m.residual)
        pull_back_rows<true>(g, first, last, pull.get(), d_out, d_residual.get(), channels, d_z);
      else
        pull_back_rows<false>(g, first, last, pull.get(), d_out, z, channels, d_z);
      multiply_rows<count>(by_source(g), first, last, d_scores.get(), p.key, p.stride, p.channels,
                           d_query, d_stride, p.bias);
    });
  });
}

// Divides matrices by their largest singular values sigma, u^T W v with the singular vectors u and
// v, after one step of the power iteration for these if `iterate`.
void spectral_forward(int64_t count, int64_t rows, int64_t columns, int64_t iterate,
                      const Real* const* matrices, Real* const* left, Real* const* right,
                      Real* normalized, Real* sigma) {
  for (int64_t k = 0; k < count; ++k) {
    const Real* matrix = matrices[k];
    Real *u = left[k], *v = right[k];
    if (iterate) {
      Real squared = 0;
      for (int64_t i = 0; i < rows; ++i) {
        u[i] = inner(matrix + i * columns, v, columns);
        squared += u[i] * u[i];
      }
      const Real length = std::max(std::sqrt(squared), SMALLEST_LENGTH);
      std::fill_n(v, columns, Real(0));
      for (int64_t i = 0; i < rows; ++i) {
        u[i] /= length;
        add_scaled(v, u[i], matrix + i * columns, columns);
      }
      // u^T W v is the length of W^T u for the v that is made of it.
      sigma[k] = std::sqrt(inner(v, v, columns));
      for (int64_t j = 0; j < columns; ++j) v[j] /= std::max(sigma[k], SMALLEST_LENGTH);
    } else {
      sigma[k] = 0;
      for (int64_t i = 0; i < rows; ++i) sigma[k] += u[i] * inner(matrix + i * columns, v, columns);
    }
    for (int64_t i = 0; i < rows * columns; ++i)
      normalized[k * rows * columns + i] = matrix[i] / sigma[k];
  }
}

// d_W = (d_N - <d_N, N> u v^T) / sigma for N = W / sigma
void spectral_backward(int64_t count, int64_t rows, int64_t columns, const Real* d_normalized,
                       const Real* normalized, const Real* left, const Real* right,
                       const Real* sigma, Real* d_matrices) {
  for (int64_t k = 0; k < count; ++k) {
    const int64_t at = k * rows * columns;
    const Real along = inner(d_normalized + at, normalized + at, rows * columns);
    const Real *u = left + k * rows, *v = right + k * columns;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t ij = at + i * columns + j;
        d_matrices[ij] = (d_normalized[ij] - along * u[i] * v[j]) / sigma[k];
      }
  }
}


// Propagates predictions, padded to 8 or 16 classes, and writes those of the targets.
void propagate(const Edges* g, const Real* degree, int64_t width, const Real* local,
               const Injected* added, const Real* added_local, const Real* weight, int64_t count,
               double lambda1, double lambda2, Real* out) {
  const Real l1 = Real(lambda1), l2 = Real(lambda2);
  if (width == 8)
    propagate_rows<8>(*g, degree, local, *added, added_local, weight, count, l1, l2, out);
  else
    propagate_rows<16>(*g, degree, local, *added, added_local, weight, count, l1, l2, out);
}

}  // extern "C"
