// winnow doctor: what this machine can do with winnow.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/output.h"
#include "apps/winnow/shapes.h"
#include "base/device_list.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "base/processor.h"
#include "base/threads.h"
#include "engine/cache_memory.h"
#include "engine/options.h"
#include "engine/weight_memory.h"
#include "model/checkpoint.h"
#include "model/cost.h"
#include "model/model.h"
#include "ops/kv_page.h"
#include "winnow/version.h"

namespace winnow::cli {
namespace {

constexpr int kWindow = 256;  // of DMS, when it was trained with long texts
constexpr double kGibibyte = 1 << 30;
constexpr double kMostMemoryGib = 1 << 20;

struct DoctorOptions {
  int context = 8192;
  double cr = 8.0;
  std::string weights = "auto";
  std::string kv_dtype = "bf16";
  double memory_gib = 0.0;  // of a device that is not here; 0: those that are
  bool json = false;
};

// Where a model can run.
struct Place {
  std::string name;  // as --device takes it, or the memory of one that is not here
  std::size_t free_memory = 0;
};

// Those that compute with such weights.
std::vector<Place> places_of(const DeviceList& list, const DoctorOptions& options) {
  if (options.memory_gib > 0.0) {
    engine::parse_weights(options.weights, /*on_cpu=*/false);
    return {{fmt::format("{:g} GiB", options.memory_gib),
             static_cast<std::size_t>(options.memory_gib * kGibibyte)}};
  }
  std::vector<Place> places;
  const bool only_devices =
      engine::parse_weights(options.weights, list.devices.empty()) == engine::WeightStorage::fp8;
  if (!only_devices) {
    places.push_back({"cpu", available_host_memory()});
  }
  for (std::size_t i = 0; i < list.devices.size(); ++i) {
    places.push_back({fmt::format("cuda:{}", i), list.devices[i].free_memory});
  }
  return places;
}

// What a model takes, in bytes.
struct Need {
  double weights = 0.0;
  double dense = 0.0;       // of a sequence
  double compressed = 0.0;  // the same under DMS
};

Need need_of(const model::ModelSpec& spec, const DoctorOptions& options) {
  Need need;
  need.weights =
      engine::weight_bytes(spec, engine::parse_weights(options.weights, /*on_cpu=*/false));
  const ops::PageLayout layout =
      model::cache_shape(spec).page_layout(engine::parse_kv_dtype(options.kv_dtype));
  const double entry_bytes = static_cast<double>(layout.entry_bytes());
  const double window = std::min(options.context, kWindow);
  need.dense = entry_bytes * dense_entries(spec, options.context);
  need.compressed = std::max(need.dense / options.cr, entry_bytes * dense_entries(spec, window));
  return need;
}

// Sequences that fit beside the weights.
long long sequences(double memory, const Need& need, double each) {
  if (memory <= need.weights) {
    return 0;
  }
  const auto room = engine::cache_room(static_cast<std::size_t>(memory - need.weights));
  return static_cast<long long>(static_cast<double>(room) / each);
}

nlohmann::ordered_json fits_json(const std::vector<Place>& places, const DoctorOptions& options) {
  auto rows = nlohmann::ordered_json::array();
  for (const Place& place : places) {
    for (const std::string_view shape : shape_names()) {
      const Need need = need_of(*find_shape(shape), options);
      const auto memory = static_cast<double>(place.free_memory);
      rows.push_back({{"device", place.name},
                      {"shape", shape},
                      {"weight_bytes", need.weights},
                      {"sequence_bytes_dense", need.dense},
                      {"sequence_bytes_compressed", need.compressed},
                      {"sequences_dense", sequences(memory, need, need.dense)},
                      {"sequences_compressed", sequences(memory, need, need.compressed)}});
    }
  }
  return rows;
}

nlohmann::ordered_json to_json(const Processor& processor, const DeviceList& list,
                               const DoctorOptions& options) {
  auto devices = nlohmann::ordered_json::array();
  for (const DeviceInfo& device : list.devices) {
    devices.push_back(
        {{"name", device.name},
         {"compute_capability", fmt::format("{}.{}", device.compute_major, device.compute_minor)},
         {"memory_bytes", device.total_memory},
         {"free_bytes", device.free_memory}});
  }
  return {{"version", WINNOW_VERSION},
          {"cpu", processor.name},
          {"threads", thread_count()},
          {"instruction_sets", processor.instruction_sets},
          {"memory_bytes", total_host_memory()},
          {"available_bytes", available_host_memory()},
          {"devices", devices},
          {"why_no_device", list.problem},
          {"context", options.context},
          {"cr", options.cr},
          {"weights", options.weights},
          {"kv_dtype", options.kv_dtype},
          {"fits", fits_json(places_of(list, options), options)}};
}

std::string machine_text(const Processor& processor, const DeviceList& list) {
  const auto gib = [](std::size_t bytes) { return readable_bytes(static_cast<double>(bytes)); };
  const std::vector<std::string> sets = processor.instruction_sets;
  std::string text = fmt::format("winnow {}\n\n", WINNOW_VERSION);
  text += fmt::format("  cpu        {}, {} threads\n", processor.name, thread_count());
  text += fmt::format("             {}\n", sets.empty() ? "no AVX2: the slowest kernels"
                                                        : fmt::format("{}", fmt::join(sets, ", ")));
  text += fmt::format("  memory     {}, {} available\n", gib(total_host_memory()),
                      gib(available_host_memory()));
  if (!list.problem.empty()) {
    text += fmt::format("  device     none: {}\n", list.problem);
  }
  for (std::size_t i = 0; i < list.devices.size(); ++i) {
    const DeviceInfo& device = list.devices[i];
    text +=
        fmt::format("  cuda:{:<5} {}, sm_{}{}, {}, {} free\n", i, device.name, device.compute_major,
                    device.compute_minor, gib(device.total_memory), gib(device.free_memory));
  }
  return text;
}

// What a table says in place of sequences where the weights do not fit.
std::string too_large(const model::ModelSpec& spec, double memory) {
  const std::string_view format = engine::format_that_fits(spec, memory);
  return format.empty() ? "too large" : fmt::format("too large; fits with --weights {}", format);
}

std::string fits_row(const Place& place, std::string_view shape, const DoctorOptions& options) {
  const model::ModelSpec spec = *find_shape(shape);
  const Need need = need_of(spec, options);
  const auto memory = static_cast<double>(place.free_memory);
  const std::string cells =
      memory > need.weights
          ? fmt::format("{:>13}{:>13}", grouped(sequences(memory, need, need.dense)),
                        grouped(sequences(memory, need, need.compressed)))
          : "    " + too_large(spec, memory);
  return fmt::format("  {:<9}{:<20}{:>10}{}\n", place.name, shape, readable_bytes(need.weights),
                     cells);
}

std::string fits_text(const std::vector<Place>& places, const DoctorOptions& options) {
  std::string text = fmt::format(
      "\nSequences of {} tokens that fit beside the weights; weights in {}, cache entries in {}. "
      "dense: any\nmodel. compressed: only models retrofitted with DMS, at a measured ratio of "
      "{:g} and at least a window\nof {} entries. --weights int8 or int4, --kv-dtype, --context "
      "and --cr show other cases.\n\n  {:<9}{:<20}{:>10}{:>13}{:>13}\n",
      grouped(options.context), options.weights == "auto" ? "bf16" : options.weights,
      options.kv_dtype, options.cr, kWindow, "device", "shape", "weights", "dense", "compressed");
  for (const Place& place : places) {
    for (const std::string_view shape : shape_names()) {
      text += fits_row(place, shape, options);
    }
  }
  return text +
         "\nNext: winnow chat --model NAME (Qwen/Qwen3-0.6B), winnow bench --shape smollm2-135m\n";
}

int run_doctor(const DoctorOptions& options) {
  require(options.context >= 1 && options.context <= 1 << 24, "--context {}: expected 1 to {}",
          options.context, 1 << 24);
  require(options.cr >= 1.0 && options.cr <= 1000.0, "--cr {}: expected 1 to 1000", options.cr);
  require(options.memory_gib >= 0.0 && options.memory_gib <= kMostMemoryGib,
          "--memory-gib {}: expected 0 to {}", options.memory_gib, kMostMemoryGib);
  const Processor processor = read_processor();
  const DeviceList list = list_devices();
  if (options.json) {
    print_json(to_json(processor, list, options));
  } else {
    print(machine_text(processor, list) + fits_text(places_of(list, options), options));
  }
  return kSuccess;
}

}  // namespace

void add_doctor(CLI::App& app, Run& run) {
  std::shared_ptr<DoctorOptions> options;
  CLI::App* command = add_command(
      app, run, "doctor",
      "Shows what this machine can do: instruction sets, devices, memory, and which models fit",
      options, run_doctor);
  const FlagGroup own(*command);
  own.option("--context", options->context, "N", "Tokens of a sequence");
  own.option("--cr", options->cr, "X", "Compression ratio, as measured on texts");
  own.option("--weights", options->weights, "FORMAT",
             "Weights in auto (bf16), int8, int4 or, on CUDA devices, fp8");
  own.option("--kv-dtype", options->kv_dtype, "TYPE",
             "Cache entries in bf16, fp8, int8, q4 or fp32");
  own.option("--memory-gib", options->memory_gib, "GIB",
             "Plan for a device with so much free memory instead of those that are here");
  add_json_flag(own, options->json);
}

}  // namespace winnow::cli
