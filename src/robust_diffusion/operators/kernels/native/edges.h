// The edges of a graph, in both orders, and how loops run over them.
//
// Edges are sorted by destination: those that arrive at node u, its row, are rowptr[u] ..
// rowptr[u + 1]; edge e leads from source[e] to destination[e]. The same edges sorted by source
// are colptr, target and order, the last being an edge's position in the order by destination.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "vectors.h"

struct Edges {
  int64_t nodes;
  const int32_t* rowptr;
  const int32_t* source;
  const int32_t* destination;
  const int32_t* colptr;
  const int32_t* target;
  const int32_t* order;
  int64_t threads;

  int64_t count() const { return rowptr[nodes]; }
};

// One of the two orders: entry j of row u leads to node columns[j], and its value is at order[j],
// or at j without an order.
struct Order {
  const int32_t* pointers;
  const int32_t* columns;
  const int32_t* order;
};

inline Order by_destination(const Edges& g) { return {g.rowptr, g.source, nullptr}; }
inline Order by_source(const Edges& g) { return {g.colptr, g.target, g.order}; }

// Rows that one thread takes at a time: enough edges for loops over all of them to run on full
// vectors, few enough for their values to stay in cache.
constexpr int64_t BLOCK = 64;

// Calls body(first, last) until all nodes are done, in blocks shared among the threads.
template <typename Body>
void for_blocks(const Edges& g, Body body) {
  const int64_t blocks = (g.nodes + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(dynamic) num_threads(g.threads)
  for (int64_t block = 0; block < blocks; ++block)
    body(block * BLOCK, std::min(g.nodes, (block + 1) * BLOCK));
}

// Calls body(heads), known when compiled.
template <typename Body>
void with_heads(int64_t heads, Body body) {
  switch (heads) {
    case 1: return body(std::integral_constant<int, 1>{});
    case 2: return body(std::integral_constant<int, 2>{});
    case 4: return body(std::integral_constant<int, 4>{});
    case 8: return body(std::integral_constant<int, 8>{});
  }
}

// Calls body(first, count) for parts of the channels, `count` vectors each, known when compiled.
template <typename Body>
inline void for_channels(int64_t channels, Body body) {
  int64_t first = 0;
  for (; first + 4 * LANES <= channels; first += 4 * LANES)
    body(first, std::integral_constant<int, 4>{});
  if (first + 2 * LANES <= channels) {
    body(first, std::integral_constant<int, 2>{});
    first += 2 * LANES;
  }
  if (first < channels) body(first, std::integral_constant<int, 1>{});
}

// Edges by which loops ask for features ahead of their use: rows of sources are all over memory.
// The indexes can be read that far beyond the last edge.
constexpr int64_t AHEAD = 8;

inline void fetch(const Real* from, int vectors) {
  for (int i = 0; i < vectors; ++i) __builtin_prefetch(from + i * LANES);
}

inline std::unique_ptr<Real[]> buffer(int64_t count) {
  return std::unique_ptr<Real[]>(new Real[count]);  // left uninitialised, unlike a std::vector
}
