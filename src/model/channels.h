// Borrowed channels: which channels of queries and keys carry decisions.
#pragma once

#include <cstddef>

#include "model/config.h"
#include "ops/matrix.h"

namespace winnow::model {

/// Whether decisions use channels of queries (borrowed DMS) or of keys and queries (DMC), one per
/// KV head.
bool borrows_channels(const ModelSpec& spec);
/// Whether these channels are cleared, or faded, for attention again after RoPE.
bool clears_after_rope(const ModelSpec& spec);

/// The borrowed column of the queries [T, heads * head_dim] for KV head `head`: with DMS the
/// decision, with DMC the weight omega.
std::size_t query_column(const ModelSpec& spec, std::size_t head);
/// The row of the query projection that computes it; output gates shift it.
std::size_t query_row(const ModelSpec& spec, std::size_t head);
/// DMC: the column of the keys [T, kv_heads * head_dim] that carries the decision.
std::size_t key_column(const ModelSpec& spec, std::size_t head);

/// Gives the column of a matrix for each KV head.
using ColumnOf = std::size_t (*)(const ModelSpec& spec, std::size_t head);

/// to[t, h] = from[t, column of h], for the heads that `to` [T, n] has.
void gather_channels(const ModelSpec& spec, ColumnOf column_of, ops::Matrix<const float> from,
                     ops::Matrix<float> to);
/// to[t, column of h] = from[t, h]; 0 for heads that `from` [T, n] does not have.
void scatter_channels(const ModelSpec& spec, ColumnOf column_of, ops::Matrix<float> to,
                      ops::Matrix<const float> from);

/// Multiplies all borrowed channels; 0 clears them. Does nothing if none are borrowed, or if
/// another rank has their query heads.
void scale_channels(const ModelSpec& spec, ops::Matrix<float> queries, ops::Matrix<float> keys,
                    float factor);

}  // namespace winnow::model
