#include "model/joined_tensors.h"

#include <algorithm>

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

// The prefix of the network that all tokens use.
std::string dense_prefix(const ModelSpec& spec, int layer) {
  const std::string part = spec.names.feed_forward + ".";
  return spec.layer(layer).feed_forward.experts ? part + spec.names.shared_expert + "." : part;
}

// The projections of a recurrent mixer that are joined, in their order; none for a delta net, whose
// projections are joined head by head.
std::vector<std::string> recurrent_parts(const LayerSpec& layer) {
  const RecurrentSpec* recurrent = layer.recurrent();
  if (recurrent == nullptr || recurrent->kind == RecurrentSpec::Kind::delta_net) {
    return {};
  }
  return recurrent->kind == RecurrentSpec::Kind::short_conv
             ? std::vector<std::string>{"b", "c", "x"}
             : std::vector<std::string>{"z", "xbc", "dt"};
}

std::vector<Join> joins_of(const ModelSpec& spec) {
  std::vector<Join> joins;
  for (int layer = 0; layer < spec.layer_count(); ++layer) {
    const std::string at = layer_prefix(layer);
    if (const auto parts = recurrent_parts(spec.layer(layer)); !parts.empty()) {
      const std::string mixer = at + "linear_attn.in_proj";
      joins.push_back({mixer + ".weight", {}});
      for (const std::string& part : parts) {
        joins.back().parts.push_back(fmt::format("{}_{}.weight", mixer, part));
      }
    }
    if (spec.names.joins_qkv) {
      joins.push_back({at + "self_attn.qkv_proj.weight",
                       {at + "self_attn.q_proj.weight", at + "self_attn.k_proj.weight",
                        at + "self_attn.v_proj.weight"}});
    }
    if (spec.names.joins_gate_up) {
      const std::string dense = at + dense_prefix(spec, layer);
      joins.push_back(
          {dense + "gate_up_proj.weight", {dense + "gate_proj.weight", dense + "up_proj.weight"}});
    }
  }
  return joins;
}

bool joins_any(const ModelSpec& spec) {
  return spec.names.joins_qkv || spec.names.joins_gate_up ||
         std::ranges::any_of(
             spec.layers, [](const LayerSpec& layer) { return !recurrent_parts(layer).empty(); });
}

std::int64_t rows_in_all(const Join& join, const std::map<std::string, Shape>& shapes) {
  std::int64_t rows = 0;
  for (const std::string& part : join.parts) {
    rows += shapes.at(part).front();
  }
  return rows;
}

}  // namespace

std::map<std::string, quantized::JoinedRows> joined_rows(const ModelSpec& spec) {
  std::map<std::string, quantized::JoinedRows> result;
  if (!joins_any(spec)) {
    return result;
  }
  const std::map<std::string, Shape> shapes = expected_tensors(spec);
  for (const Join& join : joins_of(spec)) {
    const std::string module = join.name.substr(0, join.name.rfind('.'));
    std::int64_t first = 0;
    for (const std::string& part : join.parts) {
      const std::int64_t count = shapes.at(part).front();
      result[part] = {module, rows_in_all(join, shapes), {.first = first, .count = count}};
      first += count;
    }
  }
  return result;
}

TensorMap split_joined(const ModelSpec& spec, TensorMap tensors,
                       const std::function<std::string(const std::string& tensor)>& where) {
  const std::map<std::string, Shape> shapes =
      joins_any(spec) ? expected_tensors(spec) : std::map<std::string, Shape>();
  // Quantised projections have no values yet.
  const auto is_described = [&tensors](const std::string& part) {
    const auto found = tensors.find(part);
    return found != tensors.end() && found->second.data == nullptr;
  };
  for (const Join& join : joins_of(spec)) {
    if (std::ranges::all_of(join.parts, [&](const auto& part) { return is_described(part); })) {
      tensors.erase(join.name);  // its codes, if tensors can have their type
      continue;
    }
    const Shape shape{rows_in_all(join, shapes), spec.hidden};
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
