#include "model/checkpoint.h"

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/json.h"
#include "checkpoint/model_path.h"
#include "checkpoint/weight_files.h"
#include "model/checkpoint_parts.h"
#include "model/expert_stacks.h"
#include "model/joined_tensors.h"
#include "model/renamed_tensors.h"
#include "model/text_part.h"

namespace winnow::model {
namespace {

// As safetensors and ggml call it.
std::string stored_type(DType type) {
  switch (type) {
    case DType::f32:
      return "F32";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    default:
      return std::string(dtype_name(type));
  }
}

}  // namespace

Checkpoint Checkpoint::open(const std::filesystem::path& path, const RopeOptions& rope,
                            const std::optional<ProbeOptions>& probe) {
  Checkpoint checkpoint =
      is_gguf_model(path) ? open_gguf(path, rope) : open(path, read_spec(path, rope));
  if (probe) {
    checkpoint.add_probe(*probe);
  }
  return checkpoint;
}

void Checkpoint::add_probe(const ProbeOptions& options) {
  Probe probe = open_probe(options, spec_, directory_);
  spec_.dms = probe.dms;
  tensors_.merge(probe.tensors);
  owner_ = std::make_shared<const std::pair<std::shared_ptr<const void>, Probe>>(std::move(owner_),
                                                                                 std::move(probe));
}

Checkpoint Checkpoint::open(const std::filesystem::path& directory, ModelSpec spec) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  checkpoint.spec_ = std::move(spec);
  const WeightFiles weights(directory);
  const TensorNames& names = checkpoint.spec_.names;
  const auto locate = [&](const std::string& name) {
    return weights.locate(stored_name(names, name));
  };
  checkpoint.owner_ =
      std::make_shared<const std::vector<std::shared_ptr<const SafetensorsFile>>>(weights.files());
  checkpoint.tensors_ = renamed(names, detail::text_part(weights.tensors()));
  std::map<std::string, Shape> wanted = expected_tensors(checkpoint.spec_);
  wanted.merge(optional_tensors(checkpoint.spec_));
  const std::map<std::string, Shape> turned = detail::turned_stacks(checkpoint.spec_);
  wanted.insert(turned.begin(), turned.end());
  const quantized::FindTensor find = [&](const std::string& name) {
    std::optional<StoredTensor> found;
    for (const std::string& stored : detail::stored_names(stored_name(names, name))) {
      found = found ? found : weights.find(stored);
    }
    return found;
  };
  std::map<std::string, quantized::JoinedRows> joined = joined_rows(checkpoint.spec_);
  joined.merge(detail::stacked_rows(checkpoint.spec_));
  checkpoint.quantized_ =
      quantized::find_weights(directory, checkpoint.spec_.config.text, find, checkpoint.owner_,
                              wanted, joined, checkpoint.spec_.dtype);
  if (checkpoint.quantized_) {
    for (const auto& [name, shape] : turned) {
      checkpoint.quantized_->unpack(name);
    }
    checkpoint.quantized_->describe(checkpoint.tensors_);
  }
  for (const auto& [name, shape] : wanted) {
    if (!checkpoint.is_converted(name)) {
      weights.require_readable(stored_name(names, name));
    }
  }
  checkpoint.tensors_ = split_joined(checkpoint.spec_, std::move(checkpoint.tensors_), locate);
  checkpoint.stacks_ = std::make_shared<const detail::ExpertStacks>(
      checkpoint.spec_, directory.string(), checkpoint.tensors_);
  detail::check_tensors(locate, checkpoint.spec_, checkpoint.tensors_);
  return checkpoint;
}

bool Checkpoint::has(std::string_view name) const {
  return tensors_.find(name) != tensors_.end();
}

const TensorMap& Checkpoint::tensors() const {
  return tensors(quantized::Weights::Which::all);
}

const TensorMap& Checkpoint::tensors_but_packed() const {
  return tensors(quantized::Weights::Which::all_but_packed);
}

const TensorMap& Checkpoint::tensors_as_stored() const {
  return tensors(quantized::Weights::Which::unpacked);
}

Buffer<std::byte> Checkpoint::converted(const std::string& name) const {
  return quantized_->values_of(name);
}

const TensorMap& Checkpoint::tensors(quantized::Weights::Which which) const {
  const TensorMap& all = quantized_ ? quantized_->converted(tensors_, which) : tensors_;
  if (stacks_ != nullptr) {
    stacks_->fill(all);
  }
  return all;
}

const quantized::QuantizedMatrix* Checkpoint::packed(const std::string& name) const {
  return quantized_ ? quantized_->packed(name) : nullptr;
}

void Checkpoint::release(std::string_view name) const {
  const auto found = tensors_.find(name);  // tensors() would convert all quantised tensors
  require(found != tensors_.end(), "{}: tensor {} is missing", directory_.string(),
          in_quotes(name));
  const TensorView& tensor = found->second;
  const bool copied = stacks_ != nullptr && stacks_->holds(tensor);
  if (!copied && !is_converted(std::string(name))) {
    MappedFile::release({tensor.data, tensor.bytes()});
  }
}

const TensorView& Checkpoint::tensor(std::string_view name) const {
  const auto found = tensors().find(name);
  require(found != tensors().end(), "{}: tensor {} is missing", directory_.string(),
          in_quotes(name));
  return found->second;
}

bool Checkpoint::is_converted(const std::string& name) const {
  return quantized_ && quantized_->holds(name);
}

StoredSizes Checkpoint::sizes() const {
  StoredSizes sizes;
  std::map<std::string, Shape> wanted = expected_tensors(spec_);
  wanted.merge(optional_tensors(spec_));
  for (const auto& [name, shape] : wanted) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || is_converted(name)) {
      continue;
    }
    const bool copied = stacks_ != nullptr && stacks_->holds(found->second);
    (copied ? sizes.held : sizes.mapped) += found->second.bytes();
    sizes.types[stored_type(found->second.dtype)] += found->second.bytes();
  }
  if (quantized_) {
    sizes.quantized = quantized_->sizes();
    sizes.mapped += sizes.quantized.mapped;
    sizes.held += sizes.quantized.packed + sizes.quantized.converted;
    for (const auto& [type, bytes] : sizes.quantized.types) {
      sizes.types[type] += bytes;
    }
  }
  return sizes;
}

std::int64_t Checkpoint::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [name, shape] : expected_tensors(spec_)) {
    count += element_count(shape);
  }
  for (const auto& [name, shape] : optional_tensors(spec_)) {
    count += has(name) ? element_count(shape) : 0;
  }
  return count;
}

}  // namespace winnow::model
