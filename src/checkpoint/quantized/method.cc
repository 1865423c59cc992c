#include "checkpoint/quantized/method.h"

#include <array>

#include "base/error.h"

namespace winnow::quantized {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<const Method> (*read)(const JsonObject& config);
};

constexpr std::array<Row, 10> kMethods{{
    {"fp8", read_fp8},
    {"fbgemm_fp8", read_fp8},
    {"compressed-tensors", read_compressed_tensors},
    {"gptq", read_gptq},
    {"awq", read_awq},
    {"auto-round", read_auto_round},
    {"intel/auto-round", read_auto_round},
    {"modelopt", read_modelopt},
    {"mxfp4", read_mxfp4},
    {"bitsandbytes", read_bitsandbytes},
}};

std::string known_methods() {
  std::string names;
  for (const Row& row : kMethods) {
    names.append(names.empty() ? "" : ", ").append(row.name);
  }
  return names;
}

/// The quantisation method; early files of bitsandbytes and AutoGPTQ do not name it.
std::string method_name(const JsonObject& config) {
  const bool bitsandbytes =
      config.boolean("load_in_4bit", false) || config.boolean("load_in_8bit", false);
  return config.text("quant_method", bitsandbytes ? "bitsandbytes" : "");
}

}  // namespace

std::unique_ptr<const Method> read_method(const JsonObject& config) {
  const std::string name = method_name(config);
  for (const Row& row : kMethods) {
    if (row.name == name) {
      return row.read(config);
    }
  }
  fail("{}: quant_method {} is not supported; winnow reads {}", config.where(), in_quotes(name),
       known_methods());
}

}  // namespace winnow::quantized
