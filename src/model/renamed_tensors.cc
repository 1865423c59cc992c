#include "model/renamed_tensors.h"

#include <utility>

namespace winnow::model {
namespace {

void replace_part(std::string& name, const std::string& part, const std::string& by) {
  if (const std::size_t at = name.find(part); at != std::string::npos) {
    name.replace(at, part.size(), by);
  }
}

std::string own_name(const TensorNames& names, std::string name) {
  for (const auto& [own, stored] : names.renamed) {
    replace_part(name, stored, own);
  }
  return name;
}

template <class Map, class Rename>
Map with_names(const TensorNames& names, Map tensors, const Rename& rename) {
  if (names.renamed.empty()) {
    return tensors;
  }
  Map result;
  for (auto& [name, tensor] : tensors) {
    result.insert_or_assign(rename(names, name), std::move(tensor));
  }
  return result;
}

}  // namespace

std::string stored_name(const TensorNames& names, std::string name) {
  for (const auto& [own, stored] : names.renamed) {
    replace_part(name, own, stored);
  }
  return name;
}

TensorMap renamed(const TensorNames& names, TensorMap tensors) {
  std::erase_if(tensors,
                [&](const auto& tensor) { return !tensor.first.starts_with(names.within); });
  return with_names(names, std::move(tensors), own_name);
}

TensorParts stored(const TensorNames& names, TensorParts tensors) {
  return with_names(names, std::move(tensors), stored_name);
}

}  // namespace winnow::model
