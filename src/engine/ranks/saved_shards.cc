#include "engine/ranks/saved_shards.h"

#include <algorithm>

#include "kvcache/saved_rows.h"
#include "model/model.h"

namespace winnow::engine {
namespace {

using kvcache::CacheShape;
using kvcache::SavedSequence;

// Calls copy(index in the rank's state, index in the whole state) for every value of a rank.
template <class Copy>
void each_state_value(const model::ModelSpec& whole, const model::Shard& shard, const Copy& copy) {
  const model::RecurrentSpec* recurrent = whole.recurrent();
  if (recurrent == nullptr) {
    return;
  }
  const auto ranges = model::share_of_state(*recurrent, shard);
  const int layers = whole.recurrent_before(whole.layer_count());
  std::size_t own = 0;
  for (int layer = 0; layer < layers; ++layer) {
    for (const model::Range& range : ranges) {
      for (int i = range.begin; i < range.end; ++i) {
        copy(own++, static_cast<std::size_t>(layer * recurrent->state_size() + i));
      }
    }
  }
}

CacheShape shape_of_shard(const model::ModelSpec& whole, const model::Shard& shard) {
  return model::cache_shape(model::shard_spec(whole, shard));
}

// The row in the whole cache of a rank's head in a layer.
int whole_row(const SavedForm& form, int layer, int head, const model::Shard& shard) {
  const model::HeadShare own = model::share_of_kv_heads(form.shape.kv_heads_of(layer), shard);
  return form.shape.heads_before(layer) + own.kv_heads.begin + head;
}

}  // namespace

bool counts_heads(const CacheShape& whole, int layer, const model::Shard& shard) {
  return model::share_of_kv_heads(whole.kv_heads_of(layer), shard).is_first();
}

SavedSequence shard_saved(const SavedForm& form, const SavedSequence& whole,
                          const model::Shard& shard) {
  const CacheShape own = shape_of_shard(form.model, shard);
  const kvcache::SavedRows rows(whole, form.shape, form.layout, form.rule);
  SavedSequence part;
  part.length = whole.length;
  std::size_t entries = 0;
  for (int layer = 0; layer < own.layers; ++layer) {
    for (int head = 0; head < own.kv_heads_of(layer); ++head) {
      rows.append_to(part, entries, static_cast<std::size_t>(whole_row(form, layer, head, shard)));
    }
  }
  part.state.resize(own.states.size());
  each_state_value(form.model, shard,
                   [&](std::size_t to, std::size_t from) { part.state[to] = whole.state[from]; });
  return part;
}

SavedSequence join_saved(const SavedForm& form, std::span<const SavedSequence> parts) {
  const auto ranks = static_cast<int>(parts.size());
  std::vector<kvcache::SavedRows> rows;
  std::vector<CacheShape> shapes;
  for (int rank = 0; rank < ranks; ++rank) {
    shapes.push_back(shape_of_shard(form.model, {rank, ranks}));
    rows.emplace_back(parts[static_cast<std::size_t>(rank)], shapes.back(), form.layout, form.rule);
  }
  SavedSequence whole;
  whole.length = parts.front().length;
  std::size_t entries = 0;
  for (int layer = 0; layer < form.shape.layers; ++layer) {
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const CacheShape& own = shapes[rank];
      if (!counts_heads(form.shape, layer, {static_cast<int>(rank), ranks})) {
        continue;
      }
      for (int head = 0; head < own.kv_heads_of(layer); ++head) {
        rows[rank].append_to(whole, entries,
                             static_cast<std::size_t>(own.heads_before(layer) + head));
      }
    }
  }
  whole.state.resize(form.shape.states.size());
  for (int rank = 0; rank < ranks; ++rank) {
    each_state_value(form.model, {rank, ranks}, [&](std::size_t from, std::size_t to) {
      whole.state[to] = parts[static_cast<std::size_t>(rank)].state[from];
    });
  }
  return whole;
}

void put(MessageWriter& message, const SavedSequence& saved) {
  message.put(saved.length);
  message.put_all(std::span(saved.archived));
  message.put_all(std::span(saved.entries));
  message.put_all(std::span(saved.marks));
  message.put_all(std::span(saved.logits));
  message.put_all(std::span(saved.open));
  message.put_all(std::span(saved.positions));
  message.put_all(std::span(saved.attention));
  message.put_all(std::span(saved.query_statistics));
  message.put_all(std::span(saved.state));
}

SavedSequence take_saved(MessageReader& message) {
  SavedSequence saved;
  saved.length = message.take<int>();
  saved.archived = message.take_all<std::int32_t>();
  saved.entries = message.take_all<std::byte>();
  saved.marks = message.take_all<std::int8_t>();
  saved.logits = message.take_all<float>();
  saved.open = message.take_all<float>();
  saved.positions = message.take_all<std::int32_t>();
  saved.attention = message.take_all<float>();
  saved.query_statistics = message.take_all<float>();
  saved.state = message.take_all<float>();
  return saved;
}

}  // namespace winnow::engine
