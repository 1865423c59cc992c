// Borrowed channels: where decisions lie among queries and keys.
#pragma once

#include <cstddef>

#include "model/config.h"
#include "ops/matrix.h"

namespace winnow::model {

/// Whether decisions take the place of channels of queries (DMS, borrowed) or of keys and queries
/// (DMC), one per KV head.
bool borrows_channels(const ModelSpec& spec);
/// Whether what attention sees of them is cleared, or faded, after RoPE too.
bool clears_after_rope(const ModelSpec& spec);

/// The borrowed column of the queries [T, heads * head_dim] for KV head `head`: of DMS the
/// decision, of DMC the weight omega.
std::size_t query_column(const ModelSpec& spec, std::size_t head);
/// The row of the query projection that computes it: further on where heads have output gates.
std::size_t query_row(const ModelSpec& spec, std::size_t head);
/// DMC: the column of the keys [T, kv_heads * head_dim] that decides.
std::size_t key_column(const ModelSpec& spec, std::size_t head);

/// A column for each KV head of one matrix.
using ColumnOf = std::size_t (*)(const ModelSpec& spec, std::size_t head);

/// to[t, h] = from[t, column of h], for the heads that `to` [T, n] has.
void gather_channels(const ModelSpec& spec, ColumnOf column_of, ops::Matrix<const float> from,
                     ops::Matrix<float> to);
/// to[t, column of h] = from[t, h]; 0 for heads that `from` [T, n] does not have.
void scatter_channels(const ModelSpec& spec, ColumnOf column_of, ops::Matrix<float> to,
                      ops::Matrix<const float> from);

/// Multiplies all borrowed channels, 0 clears them; nothing where none are borrowed.
void scale_channels(const ModelSpec& spec, ops::Matrix<float> queries, ops::Matrix<float> keys,
                    float factor);

}  // namespace winnow::model
