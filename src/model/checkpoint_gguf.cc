// Opening a GGUF file.
#include <charconv>
#include <cstdint>
#include <deque>
#include <set>

#include "base/error.h"
#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/json.h"
#include "model/checkpoint.h"
#include "model/checkpoint_parts.h"
#include "model/gguf_model.h"
#include "model/gguf_tensors.h"

namespace winnow::model {
namespace {

/// A view of a tensor if models compute with its type; else nullopt.
std::optional<TensorView> plain_view(const gguf::Tensor& tensor) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % sizeof(float) == 0;
  if (!aligned) {
    return std::nullopt;
  }
  switch (tensor.type) {
    case gguf::kF32:
      return TensorView{DType::f32, tensor.shape, tensor.bytes.data()};
    case gguf::kF16:
      return TensorView{DType::f16, tensor.shape, tensor.bytes.data()};
    case gguf::kBF16:
      return TensorView{DType::bf16, tensor.shape, tensor.bytes.data()};
    default:
      return std::nullopt;
  }
}

/// Whether the description was made from the tensor.
bool is_of_rope(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

/// Whether the tensor belongs to the part of a model that reads images or sound. Ollama keeps it in
/// the file of the text part.
bool is_of_other_inputs(std::string_view name) {
  return name.starts_with("v.") || name.starts_with("a.") || name.starts_with("mm.");
}

/// The layer of a tensor; -1 for tensors around the layers.
int layer_in_block(std::string_view name) {
  constexpr std::string_view kLayer = "blk.";
  int layer = -1;
  if (name.starts_with(kLayer)) {
    std::from_chars(name.data() + kLayer.size(), name.data() + name.size(), layer);
  }
  return layer;
}

/// Throws Error for an unused tensor: ignoring it would change the model. Tensors for other inputs
/// than text, and of the layers that predict several tokens at once, may be unused.
void check_all_are_used(const gguf::File& file, const ModelSpec& spec,
                        const std::set<std::string>& used) {
  const int layers = spec.layer_count() + predicting_layers(file);
  for (const auto& [name, tensor] : file.tensors()) {
    const int layer = layer_in_block(name);
    const bool predicts = layer >= spec.layer_count() && layer < layers;
    require(used.contains(name) || is_of_rope(name) || is_of_other_inputs(name) || predicts,
            "{}: tensor {} has no place in the model that the file describes", file.path().string(),
            in_quotes(name));
  }
}

/// Keeps the memory of tensors: the file, and vectors that differ from the file's.
struct GgufMemory {
  std::shared_ptr<const gguf::File> file;
  std::deque<Buffer<float>> vectors;
};

/// A tensor in transformers' order with its original values, in the file's precision.
TensorView original(const gguf::Tensor& tensor, const GgufPlace& place, GgufMemory& memory) {
  const auto count = static_cast<std::size_t>(element_count(tensor.shape));
  Buffer<float>& values = memory.vectors.emplace_back(count);
  gguf_matrix(tensor, place).codes(0, tensor.shape.front(), values.data());
  for (std::size_t i = 0; i < count; ++i) {
    values.data()[i] = gguf_original(place.change, values.data()[i]);
  }
  return {DType::f32, tensor.shape, reinterpret_cast<const std::byte*>(values.data())};
}

}  // namespace

Checkpoint Checkpoint::open_gguf(const std::filesystem::path& path, const RopeOptions& rope) {
  const auto memory = std::make_shared<GgufMemory>();
  memory->file = std::make_shared<const gguf::File>(path);
  Checkpoint checkpoint;
  checkpoint.directory_ = path;
  checkpoint.spec_ = read_spec(path, rope);
  checkpoint.owner_ = memory;
  checkpoint.quantized_ =
      std::make_shared<quantized::Weights>(path.string(), "GGUF", checkpoint.spec_.dtype, memory);
  const std::string architecture = gguf_architecture(*memory->file);
  std::set<std::string> used;
  std::map<std::string, Shape> wanted = expected_tensors(checkpoint.spec_);
  wanted.merge(optional_tensors(checkpoint.spec_));
  for (const auto& [name, shape] : wanted) {
    const GgufPlace place = gguf_place(checkpoint.spec_, architecture, name, shape);
    const auto tensor = gguf_part(*memory->file, place, shape);
    if (!tensor) {
      continue;
    }
    used.insert(place.tensor);
    const bool ordered = place.row || place.column;
    const bool is_matrix = shape.size() == 2;
    if (place.change != GgufChange::none || (ordered && !is_matrix)) {
      checkpoint.tensors_.emplace(name, original(*tensor, place, *memory));
    } else if (const auto view = plain_view(*tensor); view && !ordered) {
      checkpoint.tensors_.emplace(name, *view);
    } else {
      checkpoint.quantized_->add(name, shape, gguf_matrix(*tensor, place));
    }
  }
  check_all_are_used(*memory->file, checkpoint.spec_, used);
  checkpoint.quantized_->describe(checkpoint.tensors_);
  detail::check_tensors([&](const std::string&) { return path.string(); }, checkpoint.spec_,
                        checkpoint.tensors_);
  return checkpoint;
}

}  // namespace winnow::model
