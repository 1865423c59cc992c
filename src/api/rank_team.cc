#include "api/rank_team.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/build_commit.h"
#include "base/device_list.h"
#include "base/error.h"
#include "base/error_text.h"
#include "base/processor.h"
#include "base/sha256.h"
#include "base/threads.h"
#include "engine/cpu_runner.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/options.h"
#include "engine/ranks/member.h"
#include "engine/ranks/ranked_backend.h"
#include "engine/state_file.h"
#include "model/shard_calibration.h"
#include "parallel/process_ranks.h"
#include "parallel/rank_device.h"
#include "parallel/same_settings.h"
#include "parallel/thread_ranks.h"
#include "winnow/version.h"

namespace winnow::engine {
namespace {

// Threads take the devices from `first` on.
void require_devices(int first, int ranks) {
  const DeviceList list = list_devices();
  const int last = first + ranks - 1;
  require(last < static_cast<int>(list.devices.size()),
          "--tensor-parallel {}: takes the CUDA devices {} to {}, but this machine has {}{}{}",
          ranks, first, last, list.devices.size(), list.problem.empty() ? "" : ": ", list.problem);
}

EngineConfig config_of(EngineConfig config, int rank) {
  if (config.cuda_device) {
    config.cuda_device = parallel::device_of_rank(*config.cuda_device, rank, config.ranks);
  }
  return config;
}

std::unique_ptr<Backend> place_part(const model::Model& part, const EngineConfig& config,
                                    parallel::Communicator& ranks) {
  ranks.meet();  // waits until all have loaded
  if (!config.cuda_device) {
    return std::make_unique<CpuBackend>(part, &ranks);
  }
  auto local = make_cuda_backend(part, config_of(config, ranks.rank()), &ranks);
  ranks.meet();
  return local;
}

void obey_with(const model::Model& part, const model::ModelSpec& whole, const EngineConfig& config,
               parallel::Communicator& ranks) {
  const auto local = place_part(part, config, ranks);
  Member member(*local, whole, {ranks.rank(), ranks.size()});
  obey_first(member, ranks);
}

// A digest by which ranks check that they have the same model: its description, and a few bytes of
// each tensor. (Whole files may be more than a rank reads otherwise.)
std::string digest_of(const model::Checkpoint& checkpoint,
                      const kvcache::Calibration* calibration) {
  constexpr std::size_t kSample = 64;
  Sha256 digest;
  digest.update(checkpoint.spec().config.text);
  for (const model::LayerSpec& layer : checkpoint.spec().layers) {
    if (layer.attention() != nullptr && layer.attention()->rope) {
      digest.update(std::as_bytes(std::span(layer.attention()->rope->frequencies)));
    }
  }
  if (const auto& dms = checkpoint.spec().dms) {  // covers a probe, too
    digest.update(fmt::format("{} {} {}", dms->scale, dms->offset, dms->window));
  }
  for (const auto& [name, tensor] : checkpoint.tensors_but_packed()) {
    digest.update(name);
    if (tensor.data != nullptr) {
      digest.update(std::span(tensor.data, std::min(kSample, tensor.bytes())));
    }
  }
  if (calibration != nullptr) {
    for (const kvcache::LayerCalibration& layer : calibration->layers) {
      digest.update(std::as_bytes(std::span(layer.means)));
      digest.update(std::as_bytes(std::span(layer.lengths)));
    }
  }
  return digest.finish();
}

std::string describe(const PartSource& source, const EngineConfig& config) {
  const StateKind kind(source.digest, model::cache_shape(source.whole), config);
  std::string text = fmt::format(
      "version {}\nranks {}\nexchange {}\ntokens per step {}\ninstructions {}\n",
      with_build_commit(WINNOW_VERSION), config.ranks, config.ranks_use_nccl ? "nccl" : "auto",
      config.step_tokens, fmt::join(read_processor().instruction_sets, ", "));
  for (const auto& [name, value] : kind.description()) {
    text += fmt::format("{} {}\n", name, value);
  }
  return text;
}

}  // namespace

PartSource parts_of(const model::Checkpoint& checkpoint, const EngineConfig& config,
                    std::shared_ptr<const kvcache::Calibration> calibration) {
  std::string digest = digest_of(checkpoint, calibration.get());
  return {.whole = checkpoint.spec(),
          .load =
              [checkpoint, config](const model::Shard& shard) {
                return model::load_weights(checkpoint, host_format(config), !config.cuda_device,
                                           shard);
              },
          .digest = std::move(digest),
          .calibration = std::move(calibration)};
}

RankTeam::RankTeam(PartSource source, const EngineConfig& config)
    : source_(std::move(source)), config_(config) {
  if (config.cuda_device && !parallel::launched_as()) {
    require_devices(*config.cuda_device, config.ranks);
  }
  for (int rank = 0; rank < config.ranks; ++rank) {  // before anything is loaded
    model::shard_spec(source_.whole, {rank, config.ranks});
  }
  if (parallel::launched_as()) {
    join_processes();
  } else {
    start_threads();
  }
}

// If rank 0 fails to load its part, the other threads would wait for it for ever. With processes,
// the launcher ends the others when one fails.
RankTeam::~RankTeam() {
  if (!threads_.empty() && std::uncaught_exceptions() > 0) {
    ranks_->fail("rank 0 has no model");
  }
}

void RankTeam::join_processes() {
  const auto launched = *parallel::launched_as();
  require(launched.size == config_.ranks, "--tensor-parallel {}: {} ranks were started",
          config_.ranks, launched.size);
  ranks_ = parallel::join_process_ranks(launched);
  parallel::require_same_settings(*ranks_, describe(source_, config_));
}

void RankTeam::start_threads() {
  auto all = parallel::make_thread_ranks(config_.ranks);
  ranks_ = std::move(all.front());
  threads_.reserve(all.size());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    threads_.emplace_back([this, ranks = std::move(all[rank])] {
      try {
        obey_with(load_part_of(*ranks), source_.whole, config_, *ranks);
      } catch (const std::exception& error) {
        ranks->fail(fmt::format("rank {}: {}", ranks->rank(), error_text(error)));
      }
    });
  }
}

model::Model RankTeam::load_part() const {
  return load_part_of(*ranks_);
}

model::Model RankTeam::load_part_of(const parallel::Communicator& ranks) const {
  const FixedThreads fixed;  // other threads may load models meanwhile
  const model::Shard shard{ranks.rank(), ranks.size()};
  model::Model part(model::shard_spec(source_.whole, shard), source_.load(shard),
                    model::ModelPart{shard, source_.whole});
  if (source_.drawn) {
    part.draw_decisions(*source_.drawn);
  }
  if (source_.calibration != nullptr) {
    part.calibrate(std::make_shared<const kvcache::Calibration>(
        model::shard_calibration(*source_.calibration, source_.whole, shard)));
  }
  return part;
}

std::unique_ptr<Backend> RankTeam::make_backend(const model::Model& part) {
  return make_ranked_backend(place_part(part, config_, *ranks_), source_.whole, *ranks_);
}

void RankTeam::obey(const model::Model& part) {
  obey_with(part, source_.whole, config_, *ranks_);
}

}  // namespace winnow::engine
