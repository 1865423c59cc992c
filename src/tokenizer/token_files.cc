#include "tokenizer/token_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <map>

#include "checkpoint/json.h"
#include "checkpoint/json_text.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;

// A JSON object read from a file; empty if the file does not exist.
struct ObjectFile {
  explicit ObjectFile(const fs::path& path) : where(path.string()) {
    if (!fs::exists(path)) {
      return;
    }
    const std::string text = read_text_file(path);
    document = read_json_text(text, where);
    require(document.is_object(), "{}: expected an object", where);
    in_order = json_from<nlohmann::ordered_json>(with_quoted_constants(text).value_or(text));
  }
  [[nodiscard]] JsonField field() const { return {document, where}; }

  std::string where;
  nlohmann::json document = nlohmann::json::object();
  nlohmann::ordered_json in_order = nlohmann::ordered_json::object();  // in the file's order
};

// Names that transformers knows, in its order; other names follow in the files' order.
constexpr std::array<std::string_view, 7> kStandardNames{
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

std::size_t rank_of(std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(kStandardNames, name) - kStandardNames.begin());
}

std::int32_t parse_id(const std::string& text, const JsonField& field) {
  std::int32_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  require(error == std::errc() && end == text.data() + text.size() && id >= 0 && id <= kMaxTokenId,
          "{}: {} is not a token id; expected a whole number from 0 to {}", field.where(),
          in_quotes(text), kMaxTokenId);
  return id;
}

// A token that is given as text, or as an object that may omit "special".
AddedToken parse_token(const JsonField& field, bool special) {
  if (!field.is_object()) {
    return {.content = field.as_string(), .special = true};
  }
  AddedToken token = parse_added_token(field, -1);
  token.special = token.special || special;
  token.normalized = field["normalized"].as_bool_or(!token.special);
  return token;
}

bool has_content(const std::vector<AddedToken>& tokens, const std::string& content) {
  return std::ranges::any_of(tokens, [&](const AddedToken& t) { return t.content == content; });
}

}  // namespace

TokenFiles::TokenFiles(const fs::path& directory) {
  const ObjectFile config(directory / "tokenizer_config.json");
  older_ = !config.document.contains("added_tokens_decoder");
  read_named(config.field(), config.in_order, /*special=*/false);
  add_extra(config.field()["extra_special_tokens"]);
  if (extra_.empty()) {
    add_extra(config.field()["additional_special_tokens"]);  // its name before transformers 5
  }
  if (older_) {
    read_older(directory);
  } else {
    read_decoder(config.field()["added_tokens_decoder"]);
  }
  std::ranges::stable_sort(named_, {}, [](const auto& entry) { return rank_of(entry.first); });
}

void TokenFiles::read_older(const fs::path& directory) {
  const ObjectFile map(directory / "special_tokens_map.json");
  read_named(map.field(), map.in_order, /*special=*/true);
  add_extra(map.field()["extra_special_tokens"]);
  const ObjectFile list(directory / "added_tokens.json");
  read_list(list.field());
  if (extra_.empty()) {
    add_extra(map.field()["additional_special_tokens"]);
  }
}

void TokenFiles::set_named(const std::string& name, AddedToken token) {
  const auto found =
      std::ranges::find_if(named_, [&](const auto& entry) { return entry.first == name; });
  if (found != named_.end()) {
    found->second = std::move(token);
  } else {
    named_.emplace_back(name, std::move(token));
  }
}

void TokenFiles::read_named(const JsonField& object, const nlohmann::ordered_json& in_order,
                            bool special) {
  const auto is_token = [](const JsonField& value) {
    return value.is_string() || (value.is_object() && value["content"].is_string());
  };
  for (const auto& item : in_order.items()) {
    if (const JsonField value = object[item.key()];
        item.key().ends_with("_token") && is_token(value)) {
      set_named(item.key(), parse_token(value, special));
    }
  }
  if (const JsonField more = object["extra_special_tokens"]; more.is_object()) {
    for (const auto& item : in_order["extra_special_tokens"].items()) {
      set_named(item.key(), parse_token(more[item.key()], special));
    }
  }
}

void TokenFiles::add_extra(const JsonField& list) {
  if (list.is_null() || list.is_object()) {  // an object: named tokens
    return;
  }
  for (const JsonField& item : list.elements()) {
    AddedToken token = parse_token(item, /*special=*/true);
    if (!has_content(extra_, token.content)) {
      extra_.push_back(std::move(token));
    }
  }
}

void TokenFiles::read_decoder(const JsonField& decoder) {
  if (decoder.is_null()) {
    return;
  }
  if (!decoder.is_object()) {
    decoder.expected("an object of tokens");
  }
  for (const auto& item : decoder.json().items()) {
    listed_.push_back(parse_added_token(decoder[item.key()], parse_id(item.key(), decoder)));
  }
  std::ranges::stable_sort(listed_, {}, &AddedToken::id);
}

bool TokenFiles::is_special(const std::string& content) const {
  return has_content(extra_, content) || std::ranges::any_of(named_, [&](const auto& entry) {
           return rank_of(entry.first) < kStandardNames.size() && entry.second.content == content;
         });
}

// {"<pad>": 32000, ...}
void TokenFiles::read_list(const JsonField& list) {
  for (const auto& item : list.json().items()) {
    const bool special = is_special(item.key());
    listed_.push_back(
        {.id = JsonField(item.value(), list.where() + ": " + in_quotes(item.key())).as_id(),
         .content = item.key(),
         .normalized = !special,
         .special = special});
  }
  std::ranges::stable_sort(listed_, {}, &AddedToken::id);
}

bool TokenFiles::is_named(const std::string& content) const {
  return std::ranges::any_of(named_,
                             [&](const auto& entry) { return entry.second.content == content; });
}

std::vector<AddedToken> TokenFiles::beside(const std::vector<AddedToken>& own) const {
  std::vector<AddedToken> tokens = listed_;
  if (older_) {  // tokenizer.json is treated as the last of the older files
    std::map<std::int32_t, AddedToken> by_id;
    for (const auto& list : {listed_, own}) {
      for (const AddedToken& token : list) {
        by_id.insert_or_assign(token.id, token);
      }
    }
    tokens.clear();
    std::ranges::transform(by_id, std::back_inserter(tokens),
                           [](const auto& entry) { return entry.second; });
  }
  // A token with two names is in the list twice: its last flags count.
  const std::vector<AddedToken> listed = tokens;
  const auto add = [&](const AddedToken& token) {
    if (!has_content(own, token.content) && !has_content(listed, token.content) &&
        std::ranges::find(tokens, token) == tokens.end()) {
      tokens.push_back(token);
    }
  };
  for (const auto& entry : named_) {
    add(entry.second);
  }
  std::ranges::for_each(extra_, add);
  for (AddedToken& token : tokens) {
    token.special = token.special || is_named(token.content);
  }
  return tokens;
}

}  // namespace winnow
