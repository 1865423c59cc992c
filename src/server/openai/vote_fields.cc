#include "server/openai/vote_fields.h"

#include <nlohmann/json.hpp>
#include <string>

namespace winnow::server {
namespace {

constexpr int kMostChains = 128;

}  // namespace

std::optional<VoteRequest> parse_votes(const Fields& fields) {
  const nlohmann::json* object = fields.object("winnow_votes");
  if (object == nullptr) {
    return std::nullopt;
  }
  const Fields inner(*object, "winnow_votes.");
  for (const auto& [name, _] : object->items()) {
    if (name != "chains" && name != "by") {
      inner.reject(name, "no such field: there are chains and by");
    }
  }
  VoteRequest request;
  const auto chains = inner.integer("chains", 1, kMostChains);
  if (!chains) {
    inner.reject("chains", "an integer from 1 to 128");
  }
  request.chains = static_cast<int>(*chains);
  const std::string by = inner.text("by").value_or("answer");
  if (by != "answer" && by != "text") {
    inner.reject("by", "\"answer\" or \"text\"");
  }
  request.by_text = by == "text";
  return request;
}

}  // namespace winnow::server
