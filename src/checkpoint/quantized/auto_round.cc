// AutoRound (Cheng et al. 2023) stores matrices like GPTQ or AWQ, depending on "packing_format".
#include <array>
#include <utility>

#include "base/error.h"
#include "checkpoint/quantized/method.h"

namespace winnow::quantized {

std::unique_ptr<const Method> read_auto_round(const JsonObject& config) {
  constexpr const char* kKey = "packing_format";
  constexpr std::array<std::pair<std::string_view, const char*>, 3> kGptq{
      {{"auto_round:auto_gptq", "gptq"},
       {"auto_round:gptqmodel", "gptq_v2"},
       {"auto_round", "gptq_v2"}}};
  const std::string format = config.text(kKey, "auto_round:auto_gptq");
  nlohmann::json document = config.document();
  if (format == "auto_round:auto_awq") {
    document["version"] = "gemm";
    return read_awq(JsonObject(document, config.where()));
  }
  for (const auto& [name, checkpoint_format] : kGptq) {
    if (format == name) {
      document["checkpoint_format"] = checkpoint_format;
      return read_gptq(JsonObject(document, config.where()));
    }
  }
  fail(
      "{}: {} {} is not supported, expected \"auto_round:auto_gptq\", \"auto_round:gptqmodel\", "
      "\"auto_round\" or \"auto_round:auto_awq\"",
      config.where(), kKey, in_quotes(format));
}

}  // namespace winnow::quantized
