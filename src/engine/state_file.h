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

/// Tokens, and the contents of a cache after them.
struct SavedState {
  std::vector<std::int32_t> tokens;
  kvcache::SavedSequence cache;
};

/// Everything that a state depends on besides its tokens. A state of another kind cannot be used:
/// its entries come from another model or rule, or were rounded differently.
struct StateKind {
  std::string model;  // checkpoint_digest()
  kvcache::CacheShape shape;
  kvcache::Rule rule;
  ops::PageLayout layout;       // the format of entries
  DType compute = DType::bf16;  // from EngineConfig, like the next two
  WeightStorage weights = WeightStorage::as_stored;
  bool deterministic = false;

  StateKind(std::string model_digest, const kvcache::CacheShape& cache_shape,
            const EngineConfig& config, const kvcache::SequenceLimits& limits = {});

  /// Names and values, as in a file's metadata.
  [[nodiscard]] std::map<std::string, std::string> description() const;
};

/// Writes a safetensors file (docs/reference/formats.md, "State files"), whole or not at all. A new
/// file is readable by its owner only, because it contains the prompt. Throws Error on failure.
void write_state(const std::filesystem::path& path, const StateKind& kind, const SavedState& state);

/// The bytes of that file.
std::string state_image(const StateKind& kind, const SavedState& state);

/// Throws Error, which says why, unless the file is whole, undamaged and of this kind.
SavedState read_state(const std::filesystem::path& path, const StateKind& kind);
/// The same; nullopt if there is no such file, even if it has just been removed.
std::optional<SavedState> find_state(const std::filesystem::path& path, const StateKind& kind);

/// Whether the header marks the file as a state of any kind and format, even if the rest is damaged
/// or missing. Throws Error when the file cannot be opened.
bool claims_to_be_state(const std::filesystem::path& path);

/// The same as read_state() for a file in memory, which messages call `name`.
SavedState parse_state(std::span<const std::byte> image, const std::string& name,
                       const StateKind& kind);

/// The value of "sha256" in a file's metadata: a digest of the other metadata and of the tensors.
std::string state_checksum(const std::map<std::string, std::string>& description,
                           const TensorMap& tensors);

}  // namespace winnow::engine
