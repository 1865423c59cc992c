#include "engine/weight_memory.h"

#include <array>

#include "base/error.h"
#include "base/note.h"
#include "base/readable.h"
#include "engine/options.h"
#include "model/cost.h"
#include "ops/weight.h"

namespace winnow::engine {
namespace {

constexpr std::string_view kSmallest = "int4";
constexpr std::array<std::string_view, 2> kSmaller{"int8", kSmallest};

double bytes_per_weight(WeightStorage storage) {
  constexpr double kScales = 1.0 * sizeof(bf16) / ops::QuantizedWeight::kGroup;
  switch (storage) {
    case WeightStorage::as_stored:
      return sizeof(bf16);
    case WeightStorage::fp8:
      return 1.0;
    case WeightStorage::int8:
      return 1.0 + kScales;
    case WeightStorage::int4:
      return 0.5 + kScales;
  }
  return 0.0;
}

double bytes_in(const model::ModelSpec& spec, std::string_view format) {
  return weight_bytes(spec, parse_weights(format, /*on_cpu=*/true));
}

// The part of a message that proposes a smaller format; empty if there is none.
std::string smaller_weights(const model::ModelSpec& spec, WeightStorage storage, double memory) {
  const std::string_view fits = format_that_fits(spec, memory);
  const std::string_view format = fits.empty() ? kSmallest : fits;
  if (storage == WeightStorage::int4) {
    return "";
  }
  return fmt::format("; --weights {} takes {}{}", format, readable_bytes(bytes_in(spec, format)),
                     fits.empty() ? ", which is too much, too" : "");
}

}  // namespace

double weight_bytes(const model::ModelSpec& spec, WeightStorage storage) {
  double weights = stored_weights(spec);
  weights += spec.tied_embeddings ? 0.0 : 1.0 * spec.hidden * spec.vocab;
  if (const auto& layered = spec.layer_embeddings) {
    weights += 1.0 * layered->vocab * layered->width * spec.layer_count();
  }
  return bytes_per_weight(storage) * weights;
}

double copy_bytes(const model::ModelSpec& spec, bool fp8_products) {
  const double head = 1.0 * spec.hidden * spec.vocab;
  const double layers = model::stored_weights_beside_experts(spec) - head;
  return layers * (fp8_products ? 1.0 : sizeof(bf16)) + head * sizeof(bf16);
}

std::string_view format_that_fits(const model::ModelSpec& spec, double memory) {
  for (const std::string_view format : kSmaller) {
    if (bytes_in(spec, format) < memory) {
      return format;
    }
  }
  return {};
}

WeightMemory weight_memory(const model::Checkpoint& checkpoint, WeightStorage storage) {
  if (storage != WeightStorage::as_stored) {
    return {.held = weight_bytes(checkpoint.spec(), storage)};
  }
  const model::StoredSizes sizes = checkpoint.sizes();
  return {.mapped = static_cast<double>(sizes.mapped), .held = static_cast<double>(sizes.held)};
}

std::string memory_warning(const model::Checkpoint& checkpoint, WeightStorage storage,
                           const HostMemory& memory) {
  const WeightMemory need = weight_memory(checkpoint, storage);
  const auto total = static_cast<double>(memory.total);
  const auto available = static_cast<double>(memory.available);
  const std::string start = fmt::format("{}: the weights take {}", checkpoint.directory().string(),
                                        readable_bytes(need.all()));
  require(need.held < total, "{}, this process may use {} of memory in all{}", start,
          readable_bytes(total), smaller_weights(checkpoint.spec(), storage, available));
  if (need.all() <= available) {
    return "";
  }
  return fmt::format("{}, {} of memory are available: {}{}", start, readable_bytes(available),
                     need.held <= available ? "every token reads them from the disk"
                                            : "the system may swap, or end winnow",
                     smaller_weights(checkpoint.spec(), storage, available));
}

void note_memory(const model::Checkpoint& checkpoint, const EngineConfig& config) {
  if (config.cuda_device || config.ranks > 1) {
    return;
  }
  const std::string warning = memory_warning(checkpoint, config.weights, read_host_memory());
  if (!warning.empty()) {
    note(warning);
  }
}

}  // namespace winnow::engine
