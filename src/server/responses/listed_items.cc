#include "server/responses/listed_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "server/http/api_error.h"
#include "server/openai/ordered_json.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostItems = 100;

struct Page {
  int limit = 20;
  bool ascending = false;
  std::string after;
};

int limit_of(const std::string& value) {
  int limit = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), limit);
  if (error != std::errc() || end != value.data() + value.size() || limit < 1 ||
      limit > kMostItems) {
    reject("limit", fmt::format("an integer from 1 to {}", kMostItems));
  }
  return limit;
}

Page page_of(std::string_view query, std::vector<std::string>& ignored) {
  Page page;
  for (auto& [name, value] : query_parameters(query)) {
    if (name == "limit") {
      page.limit = limit_of(value);
    } else if (name == "order") {
      if (value != "asc" && value != "desc") {
        reject("order", "asc or desc");
      }
      page.ascending = value == "asc";
    } else if (name == "after") {
      page.after = std::move(value);
    } else {
      ignored.push_back(std::move(name));
    }
  }
  return page;
}

// Completes an item: requests may leave out its type and id, and have a text instead of parts.
Json whole_item(const Json& item, std::string_view response_id, std::size_t index) {
  Json whole{{"id", fmt::format("item_{}_{}", response_id, index)}, {"type", "message"}};
  whole.update(item);
  if (whole["type"] == "message") {
    whole.emplace("status", "completed");
    if (whole["content"].is_string()) {
      const bool told = whole["role"] == "assistant";
      Json part{{"type", told ? "output_text" : "input_text"}, {"text", whole["content"]}};
      if (told) {
        part["annotations"] = Json::array();
      }
      whole["content"] = Json::array({std::move(part)});
    }
  }
  return whole;
}

}  // namespace

Json listed_items(const Json& items, std::string_view response_id, std::string_view query,
                  std::vector<std::string>& ignored) {
  const Page page = page_of(query, ignored);
  std::vector<Json> all;
  for (const Json& item : items) {
    all.push_back(whole_item(item, response_id, all.size()));
  }
  if (!page.ascending) {
    std::ranges::reverse(all);
  }
  auto begin = all.begin();
  if (!page.after.empty()) {
    begin = std::ranges::find(all, Json(page.after), [](const Json& item) { return item["id"]; });
    if (begin == all.end()) {
      reject("after", "the id of an item of this response");
    }
    ++begin;
  }
  const auto end = begin + std::min<std::ptrdiff_t>(page.limit, all.end() - begin);
  Json data = std::vector<Json>(begin, end);
  const Json first = data.empty() ? Json() : data.front()["id"];
  const Json last = data.empty() ? Json() : data.back()["id"];
  return {{"object", "list"},
          {"data", std::move(data)},
          {"first_id", first},
          {"last_id", last},
          {"has_more", end != all.end()}};
}

}  // namespace winnow::server
