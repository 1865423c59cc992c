#include "model/joined_tensors.h"

#include "base/error.h"
#include "checkpoint/json.h"
#include "model/checkpoint.h"
#include "model/visit_tensors.h"

namespace winnow::model {
namespace {

struct Join {
  std::string name;
  std::vector<std::string> parts;  // from the first row on
};

std::vector<Join> joins_of(const ModelSpec& spec) {
  std::vector<Join> joins;
  for (int layer = 0; spec.names.joins_projections && layer < spec.layer_count(); ++layer) {
    const std::string at = layer_prefix(layer);
    joins.push_back({at + "self_attn.qkv_proj.weight",
                     {at + "self_attn.q_proj.weight", at + "self_attn.k_proj.weight",
                      at + "self_attn.v_proj.weight"}});
    joins.push_back(
        {at + "mlp.gate_up_proj.weight", {at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight"}});
  }
  return joins;
}

}  // namespace

TensorMap split_joined(const ModelSpec& spec, TensorMap tensors,
                       const std::function<std::string(const std::string& tensor)>& where) {
  const std::map<std::string, Shape> shapes =
      spec.names.joins_projections ? expected_tensors(spec) : std::map<std::string, Shape>();
  for (const Join& join : joins_of(spec)) {
    std::int64_t rows = 0;
    for (const std::string& part : join.parts) {
      rows += shapes.at(part).front();
    }
    const Shape shape{rows, spec.hidden};
    const auto found = tensors.find(join.name);
    require(found != tensors.end(), "{}: tensor {} is missing, expected shape [{}]",
            where(join.name), in_quotes(join.name), fmt::join(shape, ", "));
    require(found->second.shape == shape, "{}: tensor {} has shape [{}], expected [{}]",
            where(join.name), in_quotes(join.name), fmt::join(found->second.shape, ", "),
            fmt::join(shape, ", "));
    TensorView rest = found->second;
    tensors.erase(found);
    for (const std::string& part : join.parts) {
      rest.shape = shapes.at(part);
      tensors.insert_or_assign(part, rest);
      rest.data += rest.bytes();
    }
  }
  return tensors;
}

TensorParts joined(const ModelSpec& spec, const TensorMap& tensors) {
  TensorParts stored;
  for (const auto& [name, tensor] : tensors) {
    stored[name] = {tensor};
  }
  for (const Join& join : joins_of(spec)) {
    for (const std::string& part : join.parts) {
      stored[join.name].push_back(tensors.at(part));
      stored.erase(part);
    }
  }
  return stored;
}

}  // namespace winnow::model
