// Vectors of numbers, sums over their lanes, and an exponential that runs on them.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

using Real = REAL;  // float or double, set by the build

constexpr bool PORTABLE = ROUND_ALIKE;  // whether all machines are to round alike, by the build

constexpr bool SINGLE = std::is_same_v<Real, float>;

constexpr int LANES = 64 / sizeof(Real);

// Numbers that fit into the longest vector of this machine.
#if defined(__AVX512F__)
constexpr int NATIVE = 64 / sizeof(Real);
#elif defined(__AVX__)
constexpr int NATIVE = 32 / sizeof(Real);
#else
constexpr int NATIVE = 16 / sizeof(Real);
#endif

// Explicit vectors: left to itself, the compiler keeps sums over edges in memory, at 4 times the
// time. GCC does the same with explicit vectors longer than the machine's, so these are two halves.
// In portable arithmetic, results do not depend on the length.
template <int width>
struct Halves;
template <int width, bool is_native = (width <= NATIVE)>
struct VectorOf {
  typedef Real type __attribute__((vector_size(width * sizeof(Real))));
};
template <int width>
struct VectorOf<width, false> {
  typedef Halves<width> type;
};
template <>
struct VectorOf<1> {
  typedef Real type;
};
template <int width>
using Vector = typename VectorOf<width>::type;

template <int width>
struct Halves {
  Vector<width / 2> low, high;
};

#define FOR_HALVES(sign)                                                 \
  template <int width>                                                   \
  inline Halves<width> operator sign(Halves<width> x, Halves<width> y) { \
    return {x.low sign y.low, x.high sign y.high};                       \
  }                                                                      \
  template <int width>                                                   \
  inline Halves<width> operator sign(Halves<width> x, Real y) {          \
    return {x.low sign y, x.high sign y};                                \
  }                                                                      \
  template <int width>                                                   \
  inline Halves<width> operator sign(Real x, Halves<width> y) {          \
    return {x sign y.low, x sign y.high};                                \
  }
FOR_HALVES(+)
FOR_HALVES(-)
FOR_HALVES(*)
#undef FOR_HALVES

template <int width>
inline void operator+=(Halves<width>& x, Halves<width> y) {
  x.low += y.low;
  x.high += y.high;
}

// The larger and the smaller of two numbers, or of each pair of lanes; y where either is NaN.
template <typename Explicit>
inline Explicit larger(Explicit x, Explicit y) {
  return x > y ? x : y;
}
template <int width>
inline Halves<width> larger(Halves<width> x, Halves<width> y) {
  return {larger(x.low, y.low), larger(x.high, y.high)};
}
template <typename Explicit>
inline Explicit smaller(Explicit x, Explicit y) {
  return x < y ? x : y;
}
template <int width>
inline Halves<width> smaller(Halves<width> x, Halves<width> y) {
  return {smaller(x.low, y.low), smaller(x.high, y.high)};
}

// 1 / max(x, smallest), but 0 where x is 0
template <typename Explicit>
inline Explicit inverse(Explicit x, Explicit smallest) {
  return x == Explicit{} ? Explicit{} : 1 / larger(x, smallest);
}
template <int width>
inline Halves<width> inverse(Halves<width> x, Halves<width> smallest) {
  return {inverse(x.low, smallest.low), inverse(x.high, smallest.high)};
}

template <int width = LANES>
inline Vector<width> load(const Real* from) {
  if constexpr (width > NATIVE) {
    return {load<width / 2>(from), load<width / 2>(from + width / 2)};
  } else {
    Vector<width> vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
  }
}

template <typename Explicit>
inline void store(Real* to, Explicit vector) {
  std::memcpy(to, &vector, sizeof vector);
}
template <int width>
inline void store(Real* to, Halves<width> vector) {
  store(to, vector.low);
  store(to + width / 2, vector.high);
}

// Sums of every heads-th lane.
template <int heads, int width = LANES>
inline Vector<heads> fold(Vector<width> vector) {
  if constexpr (heads == width) {
    return vector;
  } else if constexpr (width > NATIVE) {
    return fold<heads, width / 2>(vector.low + vector.high);
  } else {
    Vector<width / 2> halves[2];
    std::memcpy(halves, &vector, sizeof vector);
    return fold<heads, width / 2>(halves[0] + halves[1]);
  }
}

inline Real sum(Vector<LANES> vector) { return fold<1>(vector); }

// One number per head in all lanes. Reads up to LANES numbers, whatever follows those that count.
template <int heads, int width = LANES>
inline Vector<width> spread(const Real* from) {
  if constexpr (heads == width) {
    return load<width>(from);
  } else if constexpr (width > NATIVE) {
    const auto half = spread<heads, width / 2>(from);
    return {half, half};
  } else if constexpr (heads == 1) {
    return Vector<width>{} + *from;
  } else {
    const Vector<width> read = load<width>(from);
    Vector<width> lanes;
    for (int i = 0; i < width; ++i) lanes[i] = read[i % heads];  // compiles to one permutation
    return lanes;
  }
}

// Sum of term(i) over i below the width, each asked for once. Left to the compiler, there are as
// many partial sums as the machine's vectors are wide; in portable arithmetic always LANES.
template <typename Term>
inline Real sum_over(int64_t width, Term term) {
  if constexpr (PORTABLE) {
    Real lanes[LANES] = {};
    for (int64_t first = 0; first < width; first += LANES) {
#pragma omp simd
      for (int lane = 0; lane < LANES; ++lane)
        if (first + lane < width) lanes[lane] += term(first + lane);
    }
    return sum(load(lanes));
  }
  Real total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < width; ++i) total += term(i);
  return total;
}

// <x, y> of any width
inline Real inner(const Real* x, const Real* y, int64_t width) {
  return sum_over(width, [=](int64_t i) { return x[i] * y[i]; });
}

// y += factor x of any width
inline void add_scaled(Real* y, Real factor, const Real* x, int64_t width) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) y[i] += factor * x[i];
}

// exp(x) in place, for x well below the overflow, to about one unit in the last place:
// 2^k exp(r) with |r| <= ln(2) / 2, the latter by its Taylor series up to the term that no longer
// counts. Unlike std::exp, a compiler can run this on whole vectors.
inline void exponential(Real* values, int64_t count) {
  using Bits = std::conditional_t<SINGLE, uint32_t, uint64_t>;
  constexpr int degree = SINGLE ? 7 : 13;
  constexpr int mantissa_bits = SINGLE ? 23 : 52;
  constexpr Bits exponent_bias = SINGLE ? 127 : 1023;
  constexpr Real smallest = SINGLE ? Real(-87) : Real(-708);
  // 1.5 times 2^mantissa_bits: adding it rounds to an integer and puts that in the lowest bits.
  constexpr Real rounder = Real(3 * (Bits(1) << (mantissa_bits - 1)));
  constexpr Real per_ln2 = Real(1.4426950408889634);
  // ln(2) in two parts, the first short enough for its products with k to be exact.
  constexpr Real ln2_high = SINGLE ? Real(0.693359375) : Real(0.69314718036912382);
  constexpr Real ln2_low = SINGLE ? Real(-2.1219444005469058e-4) : Real(1.9082149292705877e-10);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const Real x = values[i] < smallest ? smallest : values[i];
    const Real rounded = x * per_ln2 + rounder;
    const Real k = rounded - rounder;
    const Real r = (x - k * ln2_high) - k * ln2_low;
    Real series = 1;
    for (int term = degree; term > 0; --term) series = 1 + series * (r * (1 / Real(term)));
    Bits bits;
    std::memcpy(&bits, &rounded, sizeof(Real));
    bits = (bits + exponent_bias) << mantissa_bits;
    Real power;
    std::memcpy(&power, &bits, sizeof(Real));
    values[i] = values[i] < smallest ? Real(0) : series * power;
  }
}

// x^exponent of a positive x; the cases that flows have need no std::pow, which would cost as much
// as all edges of a node together.
inline Real power(Real x, Real exponent) {
  if (exponent == 0) return 1;
  if (exponent == -1) return 1 / x;
  if (exponent == 1) return x;
  return std::pow(x, exponent);
}
