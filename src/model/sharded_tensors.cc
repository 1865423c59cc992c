#include "model/sharded_tensors.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "base/error.h"
#include "base/threads.h"
#include "model/visit_tensors.h"

namespace winnow::model {
namespace {

using Axis = TensorCut::Axis;

bool is_one_of(const void* member, std::initializer_list<const void*> members) {
  return std::ranges::find(members, member) != members.end();
}

// The tensors of one layer that are cut by heads, and those cut by the width of its networks.
class LayerCuts {
 public:
  LayerCuts(const ModelSpec& whole, int index, const Shard& shard,
            std::map<std::string, TensorCut>& cuts)
      : whole_(whole),
        index_(index),
        spec_(whole.layer(index)),
        shard_(shard),
        heads_(share_of_heads(spec_, shard)),
        all_heads_(share_of_heads(spec_, {}).size()),
        queries_(queries_of(spec_, shard)),
        all_queries_(queries_of(spec_, {}).size()),
        cuts_(cuts) {}

  void find() const {
    LayerWeights w;
    visit_layer(whole_, index_, w, [&](const std::string& name, const Shape& shape, auto& member) {
      if (is_by_heads(w, &member)) {
        cuts_[name] = {Axis::rows, {of_heads(shape[0])}};
      } else if (is_by_queries(w, &member)) {
        cuts_[name] = {Axis::rows, {of_queries(shape[0])}};
      } else if (&w.output == static_cast<const void*>(&member)) {
        cuts_[name] = {Axis::columns, {of_queries(shape[1])}};
      } else if (is_one_of(&member,
                           {&w.recurrent.input, &w.recurrent.input_gate, &w.recurrent.taps})) {
        cuts_[name] = {Axis::rows, of_convolved(shape[0])};
      } else if (!cut_network(w, spec_.feed_forward.dense_width(), name, &member)) {
        for (const ExpertWeights& expert : w.experts) {
          cut_network(expert, spec_.feed_forward.intermediate, name, &member);
        }
      }
    });
    if (whole_.has_adapter(index_)) {
      find_in_adapter(w.adapter);
    }
  }

 private:
  // Query heads; a recurrent mixer's are numbered like its other heads.
  static Range queries_of(const LayerSpec& layer, const Shard& shard) {
    const AttentionSpec* attention = layer.attention();
    return attention != nullptr ? share_of_queries(*attention, shard)
                                : share_of_heads(layer, shard);
  }

  // KV heads, or the heads of a recurrent mixer.
  [[nodiscard]] bool is_by_heads(const LayerWeights& w, const void* member) const {
    return (member == &w.key_norm && norms_differ()) ||
           is_one_of(member, {&w.key, &w.key_bias, &w.value, &w.value_bias, &w.recurrent.gate,
                              &w.recurrent.rate, &w.recurrent.decay, &w.recurrent.log_decay,
                              &w.recurrent.decay_bias});
  }

  [[nodiscard]] bool is_by_queries(const LayerWeights& w, const void* member) const {
    return (member == &w.query_norm && norms_differ()) ||
           is_one_of(member, {&w.query, &w.query_bias, &w.sinks});
  }

  // Whether each head has weights of its own in the norms of queries and keys.
  [[nodiscard]] bool norms_differ() const {
    return spec_.attention()->query_key_norm != AttentionSpec::QueryKeyNorm::per_head;
  }

  // The rank's range of rows or columns that all heads, or all query heads, share equally.
  [[nodiscard]] Range of_heads(std::int64_t length) const {
    const auto each = static_cast<int>(length / all_heads_);
    return {each * heads_.begin, each * heads_.end};
  }
  [[nodiscard]] Range of_queries(std::int64_t length) const {
    const auto each = static_cast<int>(length / all_queries_);
    return {each * queries_.begin, each * queries_.end};
  }

  // Rows of queries, keys and values, each in the order of heads; or joined head by head.
  [[nodiscard]] std::vector<Range> of_convolved(std::int64_t rows) const {
    const RecurrentSpec& recurrent = *spec_.recurrent();
    if (rows == recurrent.channels()) {
      return share_of_channels(recurrent, shard_);
    }
    return {of_heads(rows)};
  }

  // Whether `member` is cut by the width of a network.
  template <class Network>
  bool cut_network(const Network& w, int width, const std::string& name, const void* member) const {
    const bool rows = is_one_of(member, {&w.gate, &w.gate_bias, &w.up, &w.up_bias});
    if (rows || member == &w.down) {
      cuts_[name] = {rows ? Axis::rows : Axis::columns, {share_of_width(width, shard_)}};
    }
    return rows || member == &w.down;
  }

  // Each rank that holds a KV head decides for it, by all its query heads. Where the first head
  // decides for the layer, each rank has its probe, in place of each of its own.
  void find_in_adapter(AdapterWeights& w) const {
    visit_adapter(whole_, index_, w,
                  [&](const std::string& name, const Shape& shape, const auto& member) {
                    if (is_one_of(&member, {&w.projection, &w.bias, &w.query, &w.query_bias, &w.key,
                                            &w.sinks, &w.group_bias})) {
                      cuts_[name] = {Axis::rows, of_deciding_heads(shape[0])};
                    }
                  });
  }

  [[nodiscard]] std::vector<Range> of_deciding_heads(std::int64_t length) const {
    if (!whole_.dms || !whole_.dms->per_layer) {
      return {of_heads(length)};
    }
    const auto each = static_cast<int>(length / all_heads_);
    return std::vector<Range>(static_cast<std::size_t>(heads_.size()), Range{0, each});
  }

  const ModelSpec& whole_;
  int index_;
  const LayerSpec& spec_;
  Shard shard_;
  Range heads_;
  int all_heads_;
  Range queries_;
  int all_queries_;
  std::map<std::string, TensorCut>& cuts_;
};

std::size_t length_of(const TensorCut& cut) {
  std::size_t length = 0;
  for (const Range& range : cut.ranges) {
    length += static_cast<std::size_t>(range.size());
  }
  return length;
}

// The memory of a matrix.
struct Bytes {
  const std::byte* data;
  std::size_t row_bytes;
  std::size_t rows;
};

// Copies the cut of a matrix; its `columns` have equal numbers of bits.
Buffer<std::byte> copy_cut(const Bytes& whole, std::size_t columns, const TensorCut& cut) {
  const bool by_rows = cut.axis == Axis::rows;
  const auto to_bytes = [&](int at) {
    return by_rows ? static_cast<std::size_t>(at) * whole.row_bytes
                   : static_cast<std::size_t>(at) * whole.row_bytes / columns;
  };
  const std::size_t rows = by_rows ? 1 : whole.rows;
  const std::size_t row_bytes = to_bytes(static_cast<int>(length_of(cut)));
  Buffer<std::byte> copy(rows * row_bytes);
  parallel_ranges(rows, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) {
      std::byte* to = copy.data() + row * row_bytes;
      for (const Range& range : cut.ranges) {
        const std::size_t size = to_bytes(range.size());
        std::memcpy(to, whole.data + row * whole.row_bytes + to_bytes(range.begin), size);
        to += size;
      }
    }
  });
  return copy;
}

bool is_contiguous(const TensorCut& cut) {
  return cut.axis == Axis::rows && cut.ranges.size() == 1;
}

void clear_output_biases(Weights& weights) {
  const auto clear = [](std::vector<float>& bias) { std::ranges::fill(bias, 0.0F); };
  for (LayerWeights& layer : weights.layers) {
    clear(layer.output_bias);
    clear(layer.down_bias);
    for (ExpertWeights& expert : layer.experts) {
      clear(expert.down_bias);
    }
  }
}

}  // namespace

std::map<std::string, TensorCut> tensor_cuts(const ModelSpec& whole, const Shard& shard) {
  std::map<std::string, TensorCut> cuts;
  Weights ends;
  visit_ends(whole, ends, [&](const std::string& name, const Shape&, const auto& member) {
    if (is_one_of(&member, {&ends.embedding, &ends.head, &ends.head_bias})) {
      cuts[name] = {Axis::rows, {share_of(whole.vocab, shard)}};
    }
  });
  for (int layer = 0; layer < whole.layer_count(); ++layer) {
    LayerCuts(whole, layer, shard, cuts).find();
  }
  return cuts;
}

ShardedTensors::ShardedTensors(const ModelSpec& whole, const Shard& shard, TensorSource& source)
    : source_(source), cuts_(tensor_cuts(whole, shard)) {}

bool ShardedTensors::contains(const std::string& name) const {
  return source_.contains(name);
}

const TensorCut* ShardedTensors::cut_of(const std::string& name) const {
  const auto found = cuts_.find(name);
  return found == cuts_.end() ? nullptr : &found->second;
}

TensorView ShardedTensors::get(const std::string& name) {
  const TensorCut* cut = cut_of(name);
  if (cut == nullptr) {
    return source_.get(name);
  }
  if (is_contiguous(*cut)) {
    return source_.rows(name, cut->ranges[0].begin, cut->ranges[0].end);
  }
  TensorView tensor = source_.get(name);
  const auto rows = static_cast<std::size_t>(tensor.shape[0]);
  const std::size_t axis = cut->axis == Axis::rows ? 0 : 1;
  const auto columns = axis == 0 ? std::size_t{1} : static_cast<std::size_t>(tensor.shape[1]);
  const Bytes whole{tensor.data, tensor.bytes() / rows, rows};
  tensor.data = ((*memory_)[name] = copy_cut(whole, columns, *cut)).data();
  tensor.shape[axis] = static_cast<std::int64_t>(length_of(*cut));
  source_.release(name);  // the whole of it
  return tensor;
}

std::optional<ops::Weight> ShardedTensors::quantized(const std::string& name) {
  auto weight = source_.quantized(name);
  const TensorCut* cut = cut_of(name);
  if (!weight || cut == nullptr) {
    return weight;
  }
  const auto rows = static_cast<std::size_t>(weight->rows);
  const auto columns = static_cast<std::size_t>(weight->cols);
  const std::size_t groups = columns / static_cast<std::size_t>(weight->group);
  const std::size_t scale_bytes = groups * sizeof(bf16);
  const std::size_t code_bytes = (weight->bytes() - rows * scale_bytes) / rows;
  const Bytes codes{static_cast<const std::byte*>(weight->data), code_bytes, rows};
  const Bytes scales{reinterpret_cast<const std::byte*>(weight->scales), scale_bytes, rows};
  if (cut->axis == Axis::columns) {
    for (const Range& range : cut->ranges) {
      require(range.begin % weight->group == 0 && range.end % weight->group == 0,
              "tensor {}: columns {} to {} would cut groups of {} that share a scale: use another "
              "number of ranks",
              name, range.begin, range.end, weight->group);
    }
  }
  weight->data = ((*memory_)[name] = copy_cut(codes, columns, *cut)).data();
  auto& own_scales = (*memory_)[name + " scales"] = copy_cut(scales, columns, *cut);
  weight->scales = reinterpret_cast<const bf16*>(own_scales.data());
  source_.release(name);  // the whole of it
  (cut->axis == Axis::rows ? weight->rows : weight->cols) =
      static_cast<std::int64_t>(length_of(*cut));
  return weight;
}

void ShardedTensors::release(const std::string& name) {
  memory_->erase(name);
  source_.release(name);
}

Weights bind_shard(const ModelSpec& whole, const Shard& shard, TensorSource& source,
                   std::optional<ops::WeightFormat> format, const OnLayer& on_layer) {
  if (shard.is_whole()) {
    return bind_weights(whole, source, format, on_layer);
  }
  ShardedTensors part(whole, shard, source);
  Weights weights = bind_weights(shard_spec(whole, shard), part, format, on_layer);
  weights.owners.push_back(part.memory());
  if (shard.rank > 0) {
    clear_output_biases(weights);
  }
  return weights;
}

}  // namespace winnow::model
