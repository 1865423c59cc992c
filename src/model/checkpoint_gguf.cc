// Opening a GGUF file.
#include <cstdint>
#include <set>

#include "base/error.h"
#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/json.h"
#include "model/checkpoint.h"
#include "model/checkpoint_parts.h"
#include "model/gguf_model.h"

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

/// A tensor that nothing reads would change what the model computes.
void check_all_are_used(const gguf::File& file, const std::set<std::string>& used) {
  for (const auto& [name, tensor] : file.tensors()) {
    require(used.contains(name) || name == "rope_freqs.weight",
            "{}: tensor {} has no place in the model that the file describes", file.path().string(),
            in_quotes(name));
  }
}

}  // namespace

Checkpoint Checkpoint::open_gguf(const std::filesystem::path& path, std::optional<int> context) {
  const auto file = std::make_shared<const gguf::File>(path);
  Checkpoint checkpoint;
  checkpoint.directory_ = path;
  checkpoint.spec_ = read_spec(path, context);
  checkpoint.owner_ = file;
  checkpoint.quantized_ =
      std::make_shared<quantized::Weights>(path.string(), "GGUF", checkpoint.spec_.dtype, file);
  std::set<std::string> used;
  std::map<std::string, Shape> wanted = expected_tensors(checkpoint.spec_);
  wanted.merge(optional_tensors(checkpoint.spec_));
  for (const auto& [name, shape] : wanted) {
    const auto found = file->tensors().find(gguf_name(name));
    if (found == file->tensors().end()) {
      continue;
    }
    const gguf::Tensor& tensor = found->second;
    used.insert(found->first);
    require(tensor.shape == shape, "{}: tensor {} has shape [{}], expected [{}]", path.string(),
            in_quotes(found->first), fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
    const bool permuted = has_gguf_order(checkpoint.spec_, name);
    if (const auto view = plain_view(tensor); view && !permuted) {
      checkpoint.tensors_.emplace(name, *view);
    } else {
      const AttentionSpec& attention = checkpoint.spec_.attention();
      const bool query = name.find(".q_proj.") != std::string::npos;
      const int heads = !permuted ? 0 : query ? attention.heads : attention.kv_heads;
      checkpoint.quantized_->add(name, shape, gguf_matrix(tensor, shape, heads));
    }
  }
  check_all_are_used(*file, used);
  checkpoint.quantized_->describe(checkpoint.tensors_);
  detail::check_tensors([&](const std::string&) { return path.string(); }, checkpoint.spec_,
                        checkpoint.tensors_);
  return checkpoint;
}

}  // namespace winnow::model
