#include "tokenizer/json_field.h"

#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "checkpoint/lfs_pointer.h"

namespace winnow {
namespace {

const nlohmann::json kNull;

// "tokenizer.json" + "model" -> "tokenizer.json: model" -> "tokenizer.json: model.vocab".
std::string member_of(const JsonField& field, std::string_view name) {
  const bool top = field.where().find(": ") == std::string::npos;
  return fmt::format("{}{}{}", field.where(), top ? ": " : ".", name);
}

}  // namespace

JsonField JsonField::operator[](std::string_view name) const {
  if (!is_object()) {
    expected("an object");
  }
  const auto found = value_->find(name);
  return {found == value_->end() ? kNull : *found, member_of(*this, name)};
}

std::vector<JsonField> JsonField::elements() const {
  if (!is_array()) {
    expected("an array");
  }
  std::vector<JsonField> fields;
  fields.reserve(value_->size());
  for (const nlohmann::json& element : *value_) {
    fields.emplace_back(element, fmt::format("{}[{}]", where_, fields.size()));
  }
  return fields;
}

const std::string& JsonField::as_string() const {
  if (!is_string()) {
    expected("a string");
  }
  return value_->get_ref<const std::string&>();
}

bool JsonField::as_bool() const {
  if (!value_->is_boolean()) {
    expected("true or false");
  }
  return value_->get<bool>();
}

std::int32_t JsonField::as_id() const {
  if (!value_->is_number_unsigned() || value_->get<std::uint64_t>() > kMaxTokenId) {
    expected(fmt::format("a token id (a whole number from 0 to {})", kMaxTokenId));
  }
  return static_cast<std::int32_t>(value_->get<std::uint64_t>());
}

void JsonField::expected(std::string_view what) const {
  fail("{}: expected {}, found {}", where_, what, is_null() ? "nothing" : value_->type_name());
}

void JsonField::unsupported(std::string_view what) const {
  throw Unsupported(fmt::format("{}: {} is not supported", where_, what));
}

nlohmann::json read_json_text(std::string_view text, const std::string& name) {
  reject_lfs_pointer(text, name);
  try {
    return json_from<nlohmann::json>(text);
  } catch (const nlohmann::json::exception& error) {
    const std::optional<std::string> quoted = with_quoted_constants(text);
    nlohmann::json document = quoted ? json_or_discarded<nlohmann::json>(*quoted)
                                     : nlohmann::json(nlohmann::json::value_t::discarded);
    require(!document.is_discarded(), "{}: not valid JSON: {}", name, plain_message(error));
    return document;
  }
}

}  // namespace winnow
