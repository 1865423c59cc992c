// Opening a GGUF file.
#include <cstdint>
#include <deque>
#include <set>

#include "base/error.h"
#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/json.h"
#include "model/checkpoint.h"
#include "model/checkpoint_parts.h"
#include "model/gguf_tensors.h"

namespace winnow::model {
namespace {

/// A view of a tensor whose type models compute with; nullopt for others.
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

/// Tensors that the description was made from.
bool is_of_rope(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

/// A tensor that nothing reads would change what the model computes.
void check_all_are_used(const gguf::File& file, const std::set<std::string>& used) {
  for (const auto& [name, tensor] : file.tensors()) {
    require(used.contains(name) || is_of_rope(name),
            "{}: tensor {} has no place in the model that the file describes", file.path().string(),
            in_quotes(name));
  }
}

/// What keeps the tensors alive: the file, and norms that are not as it has them.
struct GgufMemory {
  std::shared_ptr<const gguf::File> file;
  std::deque<Buffer<float>> norms;
};

/// A norm's weight less 1, in the precision that the file has.
TensorView counted_from_one(const gguf::Tensor& tensor, GgufMemory& memory) {
  const auto count = static_cast<std::size_t>(element_count(tensor.shape));
  Buffer<float>& values = memory.norms.emplace_back(count);
  gguf_matrix(tensor, 0).codes(0, tensor.shape.front(), values.data());
  for (std::size_t i = 0; i < count; ++i) {
    values.data()[i] -= 1.0F;
  }
  return {DType::f32, tensor.shape, reinterpret_cast<const std::byte*>(values.data())};
}

}  // namespace

Checkpoint Checkpoint::open_gguf(const std::filesystem::path& path, std::optional<int> context) {
  const auto memory = std::make_shared<GgufMemory>();
  memory->file = std::make_shared<const gguf::File>(path);
  Checkpoint checkpoint;
  checkpoint.directory_ = path;
  checkpoint.spec_ = read_spec(path, context);
  checkpoint.owner_ = memory;
  checkpoint.quantized_ =
      std::make_shared<quantized::Weights>(path.string(), "GGUF", checkpoint.spec_.dtype, memory);
  std::set<std::string> used;
  std::map<std::string, Shape> wanted = expected_tensors(checkpoint.spec_);
  wanted.merge(optional_tensors(checkpoint.spec_));
  for (const auto& [name, shape] : wanted) {
    const GgufPlace place = gguf_place(checkpoint.spec_, name, shape);
    const auto tensor = gguf_part(*memory->file, place, shape);
    if (!tensor) {
      continue;
    }
    used.insert(place.tensor);
    if (place.counts_from_zero) {
      checkpoint.tensors_.emplace(name, counted_from_one(*tensor, *memory));
    } else if (const auto view = plain_view(*tensor); view && place.paired_heads == 0) {
      checkpoint.tensors_.emplace(name, *view);
    } else {
      checkpoint.quantized_->add(name, shape, gguf_matrix(*tensor, place.paired_heads));
    }
  }
  check_all_are_used(*memory->file, used);
  checkpoint.quantized_->describe(checkpoint.tensors_);
  detail::check_tensors([&](const std::string&) { return path.string(); }, checkpoint.spec_,
                        checkpoint.tensors_);
  return checkpoint;
}

}  // namespace winnow::model
