#include "apps/winnow/train/plan.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "apps/winnow/output.h"
#include "base/threads.h"
#include "engine/weight_memory.h"
#include "train/device_states.h"
#include "train/flops.h"
#include "train/product_rate.h"

namespace winnow::cli {
namespace {

void print_device_states(const train::TrainingOptions& options, const model::ModelSpec& base) {
  print(fmt::format("on each of {} GPUs, without activations\n", options.ranks));
  for (const auto& [name, stage] : {std::pair("--zero-stage 1", train::ZeroStage::moments),
                                    std::pair("--zero-stage 3", train::ZeroStage::everything)}) {
    if (options.fp8_products && stage == train::ZeroStage::everything) {
      continue;  // validate() refuses it
    }
    print(fmt::format(
        "  {:<36} {:>10}\n", name,
        readable_bytes(static_cast<double>(train::device_state_bytes(options, base, stage)))));
  }
}

void print_tokens(const train::TrainingOptions& options) {
  const auto step = static_cast<std::int64_t>(options.batch * options.length);
  print(fmt::format("{:<38} {:>10}\n", "tokens of a step", grouped(step)));
  print(fmt::format("{:<38} {:>10}\n", fmt::format("tokens of {} steps", grouped(options.steps)),
                    grouped(step * options.steps)));
}

// With days where hours alone say little.
std::string readable_hours(double hours) {
  constexpr double kOfDay = 24.0;
  const std::string days =
      hours < 2 * kOfDay ? "" : fmt::format(" ({} days)", grouped(std::llround(hours / kOfDay)));
  return readable_number(hours) + days;
}

// Work and time of all steps. A CPU that is here is measured; else the rate is an assumption, as
// it depends on the device, the model and the batch.
void print_time(const TrainingFlags& flags, const train::TrainingOptions& options,
                const model::ModelSpec& base) {
  constexpr double kRateOfGpu = 400e12;
  constexpr double kRateOfCpu = 1e12;
  const double flops = train::flops_per_token(options, base) *
                       static_cast<double>(options.batch * options.length) *
                       static_cast<double>(options.steps);
  print(
      fmt::format("{:<38} {:>10}\n", "work of all steps, in PFLOP", readable_number(flops / 1e15)));
  const auto print_hours = [&](std::string_view label, double rate, std::string_view why) {
    print(fmt::format("{:<38} {:>10}\n  {}\n",
                      fmt::format("{} {} TFLOP/s", label, readable_number(rate / 1e12)),
                      readable_hours(flops / rate / 3600.0), why));
  };
  if (options.cuda_device) {
    print_hours(options.ranks > 1 ? "hours, if the GPUs do" : "hours, if the GPU does",
                kRateOfGpu * options.ranks,
                "an assumption; docs/results/training.md has rates that were measured");
  } else if (flags.memory.bytes() || options.ranks > 1) {
    print_hours("hours, if the CPUs do", kRateOfCpu, "an assumption: other rates in proportion");
  } else {
    set_threads(flags.threads);
    print_hours("hours at least, at", train::measure_product_rate(options, base),
                "products alone, measured here and now; steps do other work, too");
  }
}

// The base stays in memory to compare with, and the trained model comes beside it at each look.
double held_out_bytes(const TrainingFlags& flags, const model::ModelSpec& base) {
  return (flags.retrofit ? 2 : 1) * engine::weight_bytes(base, engine::WeightStorage::as_stored);
}

}  // namespace

void print_plan(const train::MemoryPlan& plan, std::size_t available, const TrainingFlags& flags,
                const train::TrainingOptions& options, const model::ModelSpec& base) {
  print_tokens(options);
  print_time(flags, options, base);
  print(fmt::format("{:<38} {:>10}\n", "parameters", grouped(plan.parameters)));
  print(
      fmt::format("{:<38} {:>10}\n",
                  plan.trained > plan.parameters ? "trained, with weights of decisions" : "trained",
                  grouped(plan.trained)));
  for (const auto& part : plan.parts) {
    print(fmt::format("  {:<36} {:>10}\n", part.name,
                      readable_bytes(static_cast<double>(part.bytes))));
  }
  if (options.ranks > 1) {
    print(fmt::format("{:<38} {:>10}\n", fmt::format("of each of {} ranks, about", options.ranks),
                      readable_bytes(static_cast<double>(plan.of_one()))));
    print_device_states(options, base);
  }
  print(fmt::format("{:<38} {:>10}\n", "memory needed, about",
                    readable_bytes(static_cast<double>(plan.total()))));
  if (!flags.valid.empty()) {
    print(fmt::format("{:<38} {:>10}\n", "beside it --valid takes, up to",
                      readable_bytes(held_out_bytes(flags, base))));
  }
  print(fmt::format("{:<38} {:>10}\n", "memory available",
                    readable_bytes(static_cast<double>(available))));
  train::require_fits(plan, available);
}

}  // namespace winnow::cli
