// A Hugging Face model directory: configuration and weights.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "checkpoint/quantized/weights.h"
#include "checkpoint/safetensors.h"
#include "model/config.h"
#include "model/probe/probe.h"

namespace winnow::model {

namespace detail {
class ExpertStacks;
}

/// Bytes that the weights of a checkpoint take on a CPU when load_weights() loads them without a
/// format.
struct StoredSizes {
  std::size_t mapped = 0;            // mapped pages of the files, which can be read again
  std::size_t held = 0;              // memory of the process
  quantized::WeightSizes quantized;  // the quantised part of these
  /// Bytes in the files by the type of the tensors, all of them: "Q4_K", "F32", a method's name.
  std::map<std::string, std::size_t> types = {};
};

/// An opened model directory. Weights stay memory-mapped and are shared by copies. Weights stored
/// quantised (checkpoint/quantized/) are converted to the floating-point type that config.json
/// names when a tensor is first requested; a note then tells the memory that this takes.
class Checkpoint {
 public:
  /// Reads the configuration and opens model.safetensors, or every shard that
  /// model.safetensors.index.json names (weight_files.h). Checks that every tensor the
  /// configuration calls for is there with the right shape and a floating-point type; names file,
  /// tensor and expectation otherwise.
  ///
  /// `path` may be a GGUF file in place of a directory (gguf_model.h). A probe is loaded beside the
  /// model, as its DMS adapter.
  static Checkpoint open(const std::filesystem::path& path, const RopeOptions& rope = {},
                         const std::optional<ProbeOptions>& probe = {});
  /// The same of a directory whose configuration has been read already.
  static Checkpoint open(const std::filesystem::path& directory, ModelSpec spec);

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  [[nodiscard]] const ModelSpec& spec() const { return spec_; }

  [[nodiscard]] bool has(std::string_view name) const;
  /// The tensor `name`; Error when it is missing.
  [[nodiscard]] const TensorView& tensor(std::string_view name) const;
  /// All tensors by name. Experts are separate tensors; the first call copies experts that a file
  /// stores differently.
  [[nodiscard]] const TensorMap& tensors() const;
  /// The same without the values of matrices that packed() has.
  [[nodiscard]] const TensorMap& tensors_but_packed() const;
  /// The same without the values of matrices that converted() gives.
  [[nodiscard]] const TensorMap& tensors_as_stored() const;
  /// The values of a quantised matrix in the model's type. The caller owns them.
  [[nodiscard]] Buffer<std::byte> converted(const std::string& name) const;
  /// The matrix `name` as the file's codes and scales; null when it does not stay packed in memory.
  [[nodiscard]] const quantized::QuantizedMatrix* packed(const std::string& name) const;
  /// Whether the tensor `name` was converted from a quantised one and is in no mapped file.
  [[nodiscard]] bool is_converted(const std::string& name) const;
  /// Tells that this tensor is no longer needed; its mapped pages may be dropped.
  void release(std::string_view name) const;
  /// Elements of all tensors the configuration calls for; tied embeddings count once.
  [[nodiscard]] std::int64_t parameter_count() const;
  [[nodiscard]] StoredSizes sizes() const;

 private:
  [[nodiscard]] const TensorMap& tensors(quantized::Weights::Which which) const;
  static Checkpoint open_gguf(const std::filesystem::path& file, const RopeOptions& rope);
  void add_probe(const ProbeOptions& options);

  std::filesystem::path directory_;
  ModelSpec spec_;
  std::shared_ptr<const void> owner_;              // keeps the files open
  TensorMap tensors_;                              // quantised matrices: only type and shape
  std::shared_ptr<quantized::Weights> quantized_;  // null: no weights are quantised
  std::shared_ptr<const detail::ExpertStacks> stacks_;
};

/// Names and shapes of all tensors a model of this configuration must have, e.g.
/// "model.layers.0.self_attn.q_proj.weight" -> [heads * head_dim, hidden]. A DMS adapter adds
/// "self_attn.dms_proj_alpha.weight" [kv_heads, hidden] (also when decisions are per layer: head
/// 0's row is then the one that counts) and "self_attn.dms_proj_alpha_norm.weight" [hidden].
std::map<std::string, Shape> expected_tensors(const ModelSpec& spec);

/// Names and shapes of optional tensors: an adapter's "self_attn.dms_proj_alpha.bias"
/// [kv_heads].
std::map<std::string, Shape> optional_tensors(const ModelSpec& spec);

/// Writes model.safetensors, config.json, generation_config.json and, for the convention of
/// shisa-ai, dms_metadata.json into `directory`, creating it. Each file is replaced atomically,
/// weights first; files of an earlier model that would contradict these are removed. open() reads
/// it back to an equal configuration and equal bytes; a model without retrofit also loads in
/// transformers. Throws Error when `tensors` lacks one the configuration calls for, or on failing
/// I/O.
void save_checkpoint(const std::filesystem::path& directory, const ModelSpec& spec,
                     const TensorMap& tensors);

}  // namespace winnow::model
