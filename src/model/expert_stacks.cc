#include "model/expert_stacks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "checkpoint/json.h"
#include "model/visit_tensors.h"

namespace winnow::model::detail {
namespace {

using Stacks = TensorNames::ExpertStacks;

// The places of all experts' matrices of one layer.
class LayerStacks {
 public:
  LayerStacks(const ModelSpec& spec, int layer)
      : names_(spec.names),
        what_(spec.layer(layer).feed_forward),
        hidden_(spec.hidden),
        inner_(what_.intermediate),
        prefix_(layer_prefix(layer) + spec.names.feed_forward + ".experts.") {}

  [[nodiscard]] std::vector<StackPiece> pieces() const {
    std::vector<StackPiece> result;
    for (std::int64_t e = 0; e < what_.experts->count; ++e) {
      const std::string expert = fmt::format("{}{}.", prefix_, e);
      result.push_back(of_gate_up(expert + names_.expert_gate, e, false));
      result.push_back(of_gate_up(expert + names_.expert_up, e, true));
      result.push_back(of_down(expert + names_.expert_down, e));
      if (what_.bias) {
        result.push_back(bias_of_gate_up(expert + names_.expert_gate, e, false));
        result.push_back(bias_of_gate_up(expert + names_.expert_up, e, true));
        result.push_back({expert + names_.expert_down + ".bias",
                          {hidden_},
                          prefix_ + "down_proj_bias",
                          {what_.experts->count, hidden_},
                          e * hidden_});
      }
    }
    return result;
  }

 private:
  [[nodiscard]] bool is_transposed() const {
    return names_.stacks == Stacks::transposed_halves || names_.stacks == Stacks::transposed_pairs;
  }
  // The first row of the upper or lower half, or of every second row.
  [[nodiscard]] std::int64_t first_of(bool up) const {
    return !up ? 0 : names_.stacks == Stacks::transposed_pairs ? 1 : inner_;
  }
  [[nodiscard]] std::int64_t step() const {
    return names_.stacks == Stacks::transposed_pairs ? 2 : 1;
  }

  [[nodiscard]] StackPiece of_gate_up(const std::string& name, std::int64_t e, bool up) const {
    StackPiece piece{name + ".weight", {inner_, hidden_}, prefix_ + "gate_up_proj", {}};
    const std::int64_t all = e * 2 * inner_ * hidden_;
    if (!is_transposed()) {
      piece.stack_shape = {what_.experts->count, 2 * inner_, hidden_};
      piece.offset = all + first_of(up) * hidden_;
      piece.row_stride = hidden_;
    } else {
      piece.stack_shape = {what_.experts->count, hidden_, 2 * inner_};
      piece.offset = all + first_of(up);
      piece.row_stride = step();
      piece.column_stride = 2 * inner_;
    }
    return piece;
  }

  [[nodiscard]] StackPiece of_down(const std::string& name, std::int64_t e) const {
    StackPiece piece{name + ".weight", {hidden_, inner_}, prefix_ + "down_proj", {}};
    piece.offset = e * inner_ * hidden_;
    const bool transposed = is_transposed();
    piece.stack_shape = {what_.experts->count, transposed ? inner_ : hidden_,
                         transposed ? hidden_ : inner_};
    piece.row_stride = transposed ? 1 : inner_;
    piece.column_stride = transposed ? hidden_ : 1;
    return piece;
  }

  [[nodiscard]] StackPiece bias_of_gate_up(const std::string& name, std::int64_t e, bool up) const {
    return {name + ".bias",
            {inner_},
            prefix_ + "gate_up_proj_bias",
            {what_.experts->count, 2 * inner_},
            e * 2 * inner_ + first_of(up),
            0,
            step()};
  }

  const TensorNames& names_;
  const FeedForwardSpec& what_;
  std::int64_t hidden_;
  std::int64_t inner_;
  std::string prefix_;
};

// Q, k and v of one layer, which alternate: for each KV head its query heads, its key, its value.
std::vector<StackPiece> pieces_of_heads(const ModelSpec& spec, int layer) {
  const AttentionSpec& attention = *spec.layer(layer).attention();
  const std::string prefix = layer_prefix(layer) + "self_attn.";
  const std::int64_t head = attention.head_dim;
  const std::int64_t in_turn = (attention.group() + 2) * head;
  std::vector<StackPiece> result;
  std::int64_t first = 0;
  for (const auto& [part, block] :
       {std::pair{"q_proj", attention.group() * head}, {"k_proj", head}, {"v_proj", head}}) {
    const std::int64_t rows = attention.kv_heads * block;
    const auto add = [&, block = block](const std::string& name, const std::string& kind,
                                        std::int64_t columns, const Shape& shape,
                                        const Shape& stack_shape) {
      result.push_back({.name = prefix + name + kind,
                        .shape = shape,
                        .stack = prefix + "query_key_value" + kind,
                        .stack_shape = stack_shape,
                        .offset = first * columns,
                        .row_stride = columns,
                        .block_rows = block,
                        .between = (in_turn - block) * columns});
    };
    const std::int64_t all = attention.kv_heads * in_turn;
    add(part, ".weight", spec.hidden, {rows, spec.hidden}, {all, spec.hidden});
    if (attention.qkv_bias) {
      add(part, ".bias", 1, {rows}, {all});
    }
    first += block;
  }
  return result;
}

// Latent attention: for each head its key part, which is transposed, and its value part.
std::vector<StackPiece> pieces_of_latents(const ModelSpec& spec, int layer) {
  const AttentionSpec& attention = *spec.layer(layer).attention();
  const std::string prefix = layer_prefix(layer) + "self_attn.";
  const std::int64_t rank = attention.latent->rank;
  const std::int64_t keys = attention.latent->key_dim;
  const std::int64_t values = attention.latent->value_dim;
  const Shape whole{attention.heads * (keys + values), rank};
  return {{.name = prefix + "k_b_proj.weight",
           .shape = {attention.heads * rank, keys},
           .stack = prefix + "kv_b_proj.weight",
           .stack_shape = whole,
           .row_stride = 1,
           .column_stride = rank,
           .block_rows = rank,
           .between = (keys + values) * rank - rank},
          {.name = prefix + "v_b_proj.weight",
           .shape = {attention.heads * values, rank},
           .stack = prefix + "kv_b_proj.weight",
           .stack_shape = whole,
           .offset = keys * rank,
           .row_stride = rank,
           .block_rows = values,
           .between = keys * rank}};
}

std::vector<StackPiece> pieces_of(const ModelSpec& spec) {
  std::vector<StackPiece> result;
  for (int layer = 0; layer < spec.layer_count(); ++layer) {
    if (spec.has_latents()) {
      const auto pieces = pieces_of_latents(spec, layer);
      result.insert(result.end(), pieces.begin(), pieces.end());
    }
    if (spec.names.joins_heads) {
      const auto pieces = pieces_of_heads(spec, layer);
      result.insert(result.end(), pieces.begin(), pieces.end());
    }
    if (spec.layer(layer).feed_forward.experts) {
      for (StackPiece& piece : LayerStacks(spec, layer).pieces()) {
        piece.of_expert = true;
        result.push_back(std::move(piece));
      }
    }
  }
  return result;
}

// Calls copy(element of the piece, element of the stack) in small squares, because one of the two
// is read column by column.
template <class Copy>
void for_each_element(const StackPiece& piece, const Copy& copy) {
  constexpr std::int64_t kSquare = 32;
  // A vector is a row, or a column if it comes in blocks.
  const bool is_row = piece.shape.size() == 1 && piece.block_rows == 0;
  const std::int64_t rows = is_row ? 1 : piece.shape[0];
  const std::int64_t cols = element_count(piece.shape) / rows;
  for (std::int64_t i = 0; i < rows; i += kSquare) {
    for (std::int64_t j = 0; j < cols; j += kSquare) {
      for (std::int64_t row = i; row < std::min(i + kSquare, rows); ++row) {
        for (std::int64_t col = j; col < std::min(j + kSquare, cols); ++col) {
          copy(row * cols + col, piece.place(row, col));
        }
      }
    }
  }
}

// to[places of a piece] = from[places of a stack], or the other way round.
template <class T>
void copy_as(const StackPiece& piece, const std::byte* from, std::byte* to, bool into_stack) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  for_each_element(piece, [&](std::int64_t in_piece, std::int64_t in_stack) {
    target[into_stack ? in_stack : in_piece] = source[into_stack ? in_piece : in_stack];
  });
}

void copy_elements(const StackPiece& piece, DType type, const std::byte* from, std::byte* to,
                   bool into_stack) {
  switch (dtype_size(type)) {
    case 1:
      return copy_as<std::uint8_t>(piece, from, to, into_stack);
    case 2:
      return copy_as<std::uint16_t>(piece, from, to, into_stack);
    default:
      assert(dtype_size(type) == 4);
      return copy_as<std::uint32_t>(piece, from, to, into_stack);
  }
}

// The layout of stacks in these files: some of Qwen3-VL are transposed, others as in Qwen 3.5.
std::vector<StackPiece> pieces_in(const ModelSpec& spec, const TensorMap& tensors) {
  std::vector<StackPiece> pieces = pieces_of(spec);
  const auto as_expected = [&](const StackPiece& piece) {
    const auto found = tensors.find(piece.stack);
    return found == tensors.end() || found->second.shape == piece.stack_shape;
  };
  if (spec.names.stacks == Stacks::none && !std::ranges::all_of(pieces, as_expected)) {
    ModelSpec transposed = spec;
    transposed.names.stacks = Stacks::transposed_halves;
    std::vector<StackPiece> others = pieces_of(transposed);
    return std::ranges::all_of(others, as_expected) ? others : pieces;
  }
  return pieces;
}

std::size_t bytes_of(const Shape& shape, DType type) {
  return static_cast<std::size_t>(element_count(shape)) * dtype_size(type);
}

}  // namespace

namespace {

using Joined = std::map<std::string, quantized::JoinedRows>;

void add_rows_of_experts(const ModelSpec& spec, int layer, Joined& result) {
  const FeedForwardSpec& what = spec.layer(layer).feed_forward;
  const std::string prefix = layer_prefix(layer) + spec.names.feed_forward + ".experts.";
  const std::int64_t pairs = 2 * std::int64_t{what.intermediate};
  const std::int64_t count = what.experts->count;
  for (std::int64_t e = 0; e < count; ++e) {
    const std::string expert = fmt::format("{}{}.", prefix, e);
    const auto put = [&](const std::string& name, const char* stack, std::int64_t rows,
                         const quantized::RowSelection& selection) {
      result[expert + name + ".weight"] = {prefix + stack, count * rows, selection};
    };
    put(spec.names.expert_gate, "gate_up_proj", pairs, {e * pairs, what.intermediate, 2});
    put(spec.names.expert_up, "gate_up_proj", pairs, {e * pairs + 1, what.intermediate, 2});
    put(spec.names.expert_down, "down_proj", spec.hidden, {e * spec.hidden, spec.hidden});
  }
}

void add_rows_of_heads(const ModelSpec& spec, int layer, Joined& result) {
  for (const StackPiece& piece : pieces_of_heads(spec, layer)) {
    if (piece.name.ends_with(".weight")) {
      const std::int64_t columns = piece.row_stride;
      result[piece.name] = {piece.stack.substr(0, piece.stack.rfind('.')),
                            piece.stack_shape.front(),
                            {.first = piece.offset / columns,
                             .count = piece.shape.front(),
                             .step = piece.block_rows + piece.between / columns,
                             .block = piece.block_rows}};
    }
  }
}

}  // namespace

Joined stacked_rows(const ModelSpec& spec) {
  Joined result;
  for (int layer = 0; layer < spec.layer_count(); ++layer) {
    if (spec.layer(layer).feed_forward.experts && spec.names.stacks == Stacks::transposed_pairs) {
      add_rows_of_experts(spec, layer, result);
    }
    if (spec.names.joins_heads) {
      add_rows_of_heads(spec, layer, result);
    }
  }
  return result;
}

std::map<std::string, Shape> turned_stacks(const ModelSpec& spec) {
  std::map<std::string, Shape> result;
  for (int layer = 0; spec.has_latents() && layer < spec.layer_count(); ++layer) {
    const StackPiece piece = pieces_of_latents(spec, layer).front();
    result[piece.stack] = piece.stack_shape;
  }
  return result;
}

bool StackPiece::is_whole() const {
  return block_rows == 0 && column_stride == 1 && (shape.size() == 1 || row_stride == shape.back());
}

ExpertStacks::ExpertStacks(const ModelSpec& spec, const std::string& where, TensorMap& tensors) {
  TensorMap stacks;
  for (StackPiece& piece : pieces_in(spec, tensors)) {
    if (const auto found = tensors.find(piece.stack); found != tensors.end()) {
      require(found->second.shape == piece.stack_shape,
              "{}: tensor {} has shape [{}], expected [{}]", where, in_quotes(piece.stack),
              fmt::join(found->second.shape, ", "), fmt::join(piece.stack_shape, ", "));
      stacks.insert(tensors.extract(found));
    }
    const auto stack = stacks.find(piece.stack);
    if (stack == stacks.end()) {
      continue;
    }
    if (const auto known = tensors.find(piece.name);
        known != tensors.end() && known->second.data == nullptr) {
      continue;  // quantised: it has no values yet
    }
    const TensorView& whole = stack->second;
    TensorView own{whole.dtype, piece.shape, nullptr};
    if (piece.is_whole()) {
      own.data = whole.data + static_cast<std::size_t>(piece.offset) * dtype_size(whole.dtype);
    } else {
      Copy& copy = copies_.emplace_back(
          Copy{piece, whole, Buffer<std::byte>(bytes_of(piece.shape, whole.dtype))});
      own.data = copy.memory.data();
    }
    tensors[piece.name] = own;
  }
}

void ExpertStacks::fill(const TensorMap& converted) const {
  std::call_once(filled_, [&] {
    parallel_each(copies_.size(), [&](std::size_t i, int) {
      Copy& copy = copies_[i];
      if (copy.stack.data == nullptr) {
        copy.stack = converted.find(copy.piece.stack)->second;
      }
      copy_elements(copy.piece, copy.stack.dtype, copy.stack.data, copy.memory.data(), false);
    });
  });
}

bool ExpertStacks::holds(const TensorView& tensor) const {
  return std::ranges::any_of(copies_,
                             [&](const Copy& copy) { return copy.memory.data() == tensor.data; });
}

StackedTensors::StackedTensors(const ModelSpec& spec, const TensorMap& tensors) : map_(tensors) {
  std::map<std::string, std::byte*> stacks;
  for (const StackPiece& piece : pieces_of(spec)) {
    if (piece.of_expert && spec.names.stacks == Stacks::none) {
      continue;
    }
    const TensorView part = map_.extract(piece.name).mapped();
    auto& memory = stacks[piece.stack];
    if (memory == nullptr) {
      memory = memory_.emplace_back(bytes_of(piece.stack_shape, part.dtype)).data();
      map_[piece.stack] = {part.dtype, piece.stack_shape, memory};
    }
    require(map_[piece.stack].dtype == part.dtype, "parts of different types: {} and {} in {}",
            dtype_name(map_[piece.stack].dtype), dtype_name(part.dtype), piece.stack);
    copy_elements(piece, part.dtype, part.data, memory, true);
  }
}

}  // namespace winnow::model::detail
