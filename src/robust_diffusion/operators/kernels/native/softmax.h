// Softmax over rows, each edge counted by its weight.

#pragma once

#include <cmath>
#include <limits>

#include "edges.h"

// Largest exponent of an edge of weight 0 above the peak; see operators/kernels/base.py.
constexpr Real MAX_EXPONENT = 35;

// Up to this, scores need no peak subtracted: sums of e^60 do not overflow, and those of e^-60 do
// not vanish, times weights that are neither small nor large.
constexpr Real HARMLESS = 60;
constexpr Real SMALL_WEIGHT = Real(1e-10), LARGE_WEIGHT = Real(1e6);

// As wide as Real, so that counting keeps pace with comparing.
using Count = std::conditional_t<SINGLE, int32_t, int64_t>;

// The two factors of a weight; see `edge_modulation` in operators/diffusion.py.
inline Real emphasis(Real weight) { return weight > 1 ? weight : Real(1); }
inline Real share(Real weight) { return weight > 1 ? Real(1) : weight; }

inline bool none_large(const Real* scores, int64_t count) {
  Count large = 0;
#pragma omp simd reduction(+ : large)
  for (int64_t i = 0; i < count; ++i) large += !(std::abs(scores[i]) <= HARMLESS);
  return large == 0;
}

inline bool none_extreme(const Real* weight, int64_t count) {
  Count extreme = 0;
#pragma omp simd reduction(+ : extreme)
  for (int64_t i = 0; i < count; ++i)
    extreme += !((weight[i] >= SMALL_WEIGHT) & (weight[i] <= LARGE_WEIGHT));
  return extreme == 0;
}

// Subtracts from the scores of a row the largest, among the edges of positive weight.
template <int heads>
inline void subtract_peak(const Edges& g, int64_t u, const Real* weight, Real* scores) {
  Vector<heads> peak = Vector<heads>{} - std::numeric_limits<Real>::infinity();
  for (int64_t e = g.rowptr[u]; e < g.rowptr[u + 1]; ++e) {
    const Vector<heads> score = load<heads>(scores + e * heads);
    if (weight[e] != 0) peak = larger(score, peak);
  }
  const Vector<heads> highest = Vector<heads>{} + MAX_EXPONENT;
  for (int64_t e = g.rowptr[u]; e < g.rowptr[u + 1]; ++e) {
    store(scores + e * heads, smaller(highest, load<heads>(scores + e * heads) - peak));
  }
}

// Turns harmless scores s into relative = exp(s) / sum over the row of w exp(s): the softmax is
// w relative.
template <int heads>
inline void normalize_rows(const Edges& g, int64_t first, int64_t last, const Real* weight,
                           Real* relative) {
  using PerHead = Vector<heads>;
  const int64_t begin = g.rowptr[first], end = g.rowptr[last];
  exponential(relative + begin * heads, (end - begin) * heads);
  const PerHead smallest = PerHead{} + std::numeric_limits<Real>::min();
  PerHead scale[BLOCK];
  for (int64_t u = first; u < last; ++u) {
    PerHead total{};
    for (int64_t e = g.rowptr[u]; e < g.rowptr[u + 1]; ++e)
      total += weight[e] * load<heads>(relative + e * heads);
    scale[u - first] = inverse(total, smallest);
  }
  if constexpr (heads == 1) {
#pragma omp simd
    for (int64_t e = begin; e < end; ++e) relative[e] *= scale[g.destination[e] - first];
  } else {
    for (int64_t e = begin; e < end; ++e) {
      const PerHead scaled = scale[g.destination[e] - first] * load<heads>(relative + e * heads);
      store(relative + e * heads, scaled);
    }
  }
}

// The same of any scores.
template <int heads>
inline void softmax_rows(const Edges& g, int64_t first, int64_t last, const Real* weight,
                         Real* relative) {
  const int64_t begin = g.rowptr[first], count = g.rowptr[last] - begin;
  if (!none_extreme(weight + begin, count) || !none_large(relative + begin * heads, count * heads))
    for (int64_t u = first; u < last; ++u) subtract_peak<heads>(g, u, weight, relative);
  normalize_rows<heads>(g, first, last, weight, relative);
}
