// winnow doctor: the models that this machine can run.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/memory_plan.h"
#include "apps/winnow/output.h"
#include "apps/winnow/program_name.h"
#include "apps/winnow/sequence_bytes.h"
#include "apps/winnow/shapes.h"
#include "base/build_commit.h"
#include "base/device_list.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "base/processor.h"
#include "base/read_bandwidth.h"
#include "base/threads.h"
#include "engine/cache_memory.h"
#include "engine/options.h"
#include "engine/weight_memory.h"
#include "model/cost.h"
#include "model/spec.h"
#include "ops/kv_page.h"
#include "winnow/version.h"

namespace winnow::cli {
namespace {

constexpr int kWindow = 256;  // of DMS, as trained with long texts

struct DoctorOptions {
  MemoryPlan plan;
  double cr = 8.0;
  std::string weights = "auto";
  std::string dtype = "bf16";
  std::string kv_dtype = "bf16";
  bool json = false;
};

// A device that can run a model.
struct Place {
  std::string name;  // its --device value, or the memory size of one that is not here
  std::size_t free_memory = 0;
  bool is_device = false;
  double bandwidth = 0.0;  // bytes per second; 0: not measured
};

// What the measurement itself takes is 1 GiB.
double host_bandwidth() {
  constexpr std::size_t kEnough = std::size_t{2} << 30;
  return available_host_memory() > kEnough ? measure_read_bandwidth() : 0.0;
}

// Devices that can compute with such weights.
std::vector<Place> places_of(const DeviceList& list, const DoctorOptions& options) {
  if (const auto memory = options.plan.memory.bytes()) {
    engine::parse_weights(options.weights, /*on_cpu=*/false);
    return {{fmt::format("{:g} GiB", options.plan.memory.gib), *memory, /*is_device=*/true}};
  }
  std::vector<Place> places;
  const bool only_devices =
      engine::parse_weights(options.weights, list.devices.empty()) == engine::WeightStorage::fp8;
  if (!only_devices) {
    places.push_back({"cpu", available_host_memory(), /*is_device=*/false, host_bandwidth()});
  }
  for (std::size_t i = 0; i < list.devices.size(); ++i) {
    places.push_back({fmt::format("cuda:{}", i), list.devices[i].free_memory, /*is_device=*/true});
  }
  return places;
}

// A model, and its memory needs in bytes.
struct Row {
  std::string_view shape;
  model::ModelSpec spec;
  double weights = 0.0;
  double copies = 0.0;  // of matrices, which a device holds if it has room
  double read = 0.0;    // of the weights, those that one token reads
  SequenceBytes sequence;
};

// Sorted by size, smallest first.
std::vector<Row> rows_of(const DoctorOptions& options) {
  const engine::WeightStorage storage = engine::parse_weights(options.weights, /*on_cpu=*/false);
  const bool fp8_products = engine::parse_dtype(options.dtype).fp8_products;
  const ops::EntryFormat format = engine::parse_kv_dtype(options.kv_dtype);
  std::vector<Row> rows;
  for (const std::string_view shape : shape_names()) {
    const model::ModelSpec spec = *find_shape(shape);
    const double weights = engine::weight_bytes(spec, storage);
    rows.push_back({shape, spec, weights, engine::copy_bytes(spec, fp8_products),
                    weights * model::read_weights(spec, 1.0) / model::stored_weights(spec),
                    sequence_bytes(spec, format, options.plan.context, {options.cr, kWindow})});
  }
  std::ranges::stable_sort(rows, {}, &Row::weights);
  return rows;
}

bool fits(const Place& place, const Row& row) {
  return static_cast<double>(place.free_memory) > row.weights;
}

// Bytes of the cache that a server takes without --kv-gib; 0 if the weights do not fit.
std::size_t cache_bytes(const Place& place, const Row& row) {
  if (!fits(place, row)) {
    return 0;
  }
  const std::size_t left = place.free_memory - static_cast<std::size_t>(row.weights);
  const auto copies = static_cast<std::size_t>(row.copies);
  const bool with_copies =
      place.is_device && engine::has_room_for_copies(copies, left, engine::kAllThereIs);
  return engine::cache_room(with_copies ? left - copies : left);
}

// Sequences of `each` bytes that fit in that cache.
long long sequences(const Place& place, const Row& row, double each) {
  return static_cast<long long>(static_cast<double>(cache_bytes(place, row)) / each);
}

// The most tokens per second of one stream: each token reads its weights from memory. Null if the
// bandwidth is not known.
nlohmann::ordered_json most_tokens(const Place& place, const Row& row) {
  return place.bandwidth > 0.0 ? nlohmann::ordered_json(place.bandwidth / row.read)
                               : nlohmann::ordered_json();
}

nlohmann::ordered_json fits_json(const std::vector<Place>& places, const DoctorOptions& options) {
  const std::vector<Row> rows = rows_of(options);
  auto result = nlohmann::ordered_json::array();
  for (const Place& place : places) {
    for (const Row& row : rows) {
      result.push_back({{"device", place.name},
                        {"shape", row.shape},
                        {"weight_bytes", row.weights},
                        {"most_tokens_per_s", most_tokens(place, row)},
                        {"sequence_bytes_dense", row.sequence.dense},
                        {"sequence_bytes_compressed", row.sequence.compressed},
                        {"cache_bytes", cache_bytes(place, row)},
                        {"sequences_dense", sequences(place, row, row.sequence.dense)},
                        {"sequences_compressed", sequences(place, row, row.sequence.compressed)}});
    }
  }
  return result;
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
          {"commit", build_commit()},
          {"cpu", processor.name},
          {"threads", thread_count()},
          {"instruction_sets", processor.instruction_sets},
          {"memory_bytes", total_host_memory()},
          {"available_bytes", available_host_memory()},
          {"devices", devices},
          {"why_no_device", list.problem},
          {"context", options.plan.context},
          {"cr", options.cr},
          {"weights", options.weights},
          {"dtype", options.dtype},
          {"kv_dtype", options.kv_dtype},
          {"fits", fits_json(places_of(list, options), options)}};
}

std::string machine_text(const Processor& processor, const DeviceList& list) {
  const auto gib = [](std::size_t bytes) { return readable_bytes(static_cast<double>(bytes)); };
  const std::vector<std::string> sets = processor.instruction_sets;
  std::string text = with_build_commit("winnow " WINNOW_VERSION) + "\n\n";
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

// The table cell if the weights do not fit. A suggested format must also leave room for a
// sequence.
std::string too_large(const Row& row, double memory) {
  const std::string_view format =
      engine::format_that_fits(row.spec, memory - engine::memory_of_cache(row.sequence.dense));
  return format.empty() ? "too large" : fmt::format("too large; fits with --weights {}", format);
}

// What helps where the weights leave no room for a chat; `each`: the bytes of one.
std::string room_for_chat(const Place& place, const Row& row, double each) {
  const auto memory = static_cast<double>(place.free_memory);
  const std::string_view format =
      engine::format_that_fits(row.spec, memory - engine::memory_of_cache(each));
  const bool is_smaller =
      !format.empty() &&
      engine::weight_bytes(row.spec, engine::parse_weights(std::string(format),
                                                           /*on_cpu=*/false)) < row.weights;
  return is_smaller ? fmt::format("fits with --weights {}", format)
                    : "needs a shorter --context or a smaller model";
}

std::string most_tokens_text(const Place& place, const Row& row) {
  const nlohmann::ordered_json most = most_tokens(place, row);
  return most.is_null() ? "-" : readable_number(most.get<double>()) + "/s";
}

// Of the column of places, with a space after the longest name.
std::size_t place_width(const std::vector<Place>& places) {
  std::size_t width = 9;
  for (const Place& place : places) {
    width = std::max(width, place.name.size() + 1);
  }
  return width;
}

std::string chats_text(const Place& place, const Row& row) {
  const long long dense = sequences(place, row, row.sequence.dense);
  const long long compressed = sequences(place, row, row.sequence.compressed);
  if (compressed == 0) {
    return "    no room for a chat; " + room_for_chat(place, row, row.sequence.compressed);
  }
  const std::string cells =
      fmt::format("{:>14}{:>19}", dense > 0 ? grouped(dense) : "none", grouped(compressed));
  return dense > 0 ? cells
                   : fmt::format("{}  a dense one {}", cells,
                                 room_for_chat(place, row, row.sequence.dense));
}

std::string fits_row(const Place& place, const Row& row, std::size_t width) {
  const std::string cells =
      fits(place, row)
          ? fmt::format("{:>16}{}", most_tokens_text(place, row), chats_text(place, row))
          : "    " + too_large(row, static_cast<double>(place.free_memory));
  return fmt::format("  {:<{}}{:<18}{:>10}{:>17}{}\n", place.name, width, row.shape,
                     readable_bytes(row.weights), readable_bytes(row.sequence.dense), cells);
}

// Empty if no place was measured.
std::string bandwidth_text(const std::vector<Place>& places) {
  std::string text;
  for (const Place& place : places) {
    if (place.bandwidth > 0.0) {
      text += fmt::format("  {}'s memory reads {}/s, measured now; other programs lower it\n",
                          place.name, readable_bytes(place.bandwidth));
    }
  }
  return text;
}

std::string fits_text(const std::vector<Place>& places, const DoctorOptions& options) {
  const std::size_t width = place_width(places);
  std::string text = bandwidth_text(places);
  text += fmt::format(
      "\nWhat fits: weights in {}, cache entries in {}, chats of {} tokens. "
      "--weights int8 or int4, --kv-dtype and\n--context show other cases; winnow inspect MODEL "
      "tells in which formats any model fits.\n"
      "  one chat, dense    the memory of a chat's ordinary cache\n"
      "  decode at most     tokens of one short chat: each reads its weights from memory\n"
      "  chats: dense       how many fit beside the weights; any model\n"
      "  chats: compressed  the same for a model retrofitted with DMS, at an assumed ratio of {:g} "
      "(--cr) that\n                     counts the window, with at least {} entries\n"
      "On a GPU, and for --memory-gib, a server's copy of matrices counts, too "
      "(docs/serving-production.md).\n\n"
      "  {:<{}}{:<18}{:>10}{:>17}{:>16}{:>14}{:>19}\n",
      options.weights == "auto" ? "bf16" : options.weights, options.kv_dtype,
      grouped(options.plan.context), options.cr, kWindow, "device", width, "shape", "weights",
      "one chat, dense", "decode at most", "chats: dense", "chats: compressed");
  const std::vector<Row> rows = rows_of(options);
  for (const Place& place : places) {
    for (const Row& row : rows) {
      text += fits_row(place, row, width);
    }
  }
  return text + fmt::format(
                    "\nNext: {0} chat --model NAME (Qwen/Qwen3-0.6B), {0} bench --shape "
                    "smollm2-135m\n",
                    program_name());
}

int run_doctor(const DoctorOptions& options) {
  check(options.plan);
  require(options.cr >= 1.0 && options.cr <= 1000.0, "--cr {}: expected 1 to 1000", options.cr);
  require(!engine::parse_dtype(options.dtype).fp8_products || options.weights == "fp8",
          "--dtype fp8: multiplies fp8 weights; it needs --weights fp8");
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
  add_plan_flags(own, options->plan);
  own.option("--cr", options->cr, "X", "Compression ratio, as measured on texts");
  own.option("--weights", options->weights, "FORMAT",
             "Weights in auto (bf16), int8, int4 or, on CUDA devices, fp8");
  own.option("--dtype", options->dtype, "TYPE",
             "Computation, as of winnow serve: with fp8 a GPU's copy of matrices is smaller");
  own.option("--kv-dtype", options->kv_dtype, "TYPE",
             "Cache entries in bf16, fp8, int8, q4 or fp32");
  add_json_flag(own, options->json);
}

}  // namespace winnow::cli
