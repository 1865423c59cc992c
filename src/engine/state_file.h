// Files that hold the cache of a prefix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "engine/engine.h"
#include "kvcache/saved_sequence.h"

namespace winnow::engine {

/// Tokens, and what a cache holds after them.
struct SavedState {
  std::vector<std::int32_t> tokens;
  kvcache::SavedSequence cache;
};

/// All that a state depends on beside its tokens. A state of another kind is of no use: its entries
/// come from another model or another rule, or were rounded differently.
struct StateKind {
  std::string model;  // checkpoint_digest()
  kvcache::CacheShape shape;
  kvcache::Rule rule;
  ops::PageLayout layout;       // of entries: their format
  DType compute = DType::bf16;  // EngineConfig's, as the next two
  WeightStorage weights = WeightStorage::as_stored;
  bool deterministic = false;

  StateKind(std::string model_digest, const kvcache::CacheShape& cache_shape,
            const EngineConfig& config, const kvcache::SequenceLimits& limits = {});

  /// Names and values, as files have them in their metadata.
  [[nodiscard]] std::map<std::string, std::string> description() const;
};

/// Writes a safetensors file (docs/formats.md, "State files"), whole or not at all; a new one is
/// for its owner only, as it holds a prompt in clear. Throws Error when it cannot be written.
void write_state(const std::filesystem::path& path, const StateKind& kind, const SavedState& state);

/// The bytes of such a file.
std::string state_image(const StateKind& kind, const SavedState& state);

/// Throws Error, which says why, unless the file is whole, undamaged and of this kind.
SavedState read_state(const std::filesystem::path& path, const StateKind& kind);
/// The same; nothing if there is no file of this name, also when it has just been removed.
std::optional<SavedState> find_state(const std::filesystem::path& path, const StateKind& kind);

/// Whether the header says that the file is a state of any kind and format, even if the rest is
/// damaged or missing. Throws Error when it cannot be opened.
bool claims_to_be_state(const std::filesystem::path& path);

/// The same as read_state() of a file in memory; `name` stands for it in messages.
SavedState parse_state(std::span<const std::byte> image, const std::string& name,
                       const StateKind& kind);

/// What a file's metadata says under "sha256": of the rest of its metadata and of its tensors.
std::string state_checksum(const std::map<std::string, std::string>& description,
                           const TensorMap& tensors);

}  // namespace winnow::engine
