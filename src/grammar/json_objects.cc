#include "grammar/json_objects.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "grammar/regex_parser.h"

namespace winnow::grammar {
namespace {

constexpr std::size_t kMostProperties = 4096;

Regular::Ptr pattern_language(const std::string& pattern, const std::string& where) {
  try {
    return Regular::of(*parse_regex(pattern, RegexMatch::anywhere));
  } catch (const Error& error) {
    fail("{}: {}", where, error.what());
  }
}

class ObjectCompiler {
 public:
  ObjectCompiler(const Assertions& all, std::string where, MemberCompiler& compiler)
      : all_(all), where_(std::move(where)), compiler_(compiler) {}

  ExpressionPtr compile() {
    require(all_.max_properties < 0 || all_.min_properties <= all_.max_properties,
            "{}: minProperties is more than maxProperties", where_);
    if (all_.objects.empty() && all_.required.empty() && all_.names.empty() && !all_.closed &&
        all_.min_properties == 0 && all_.max_properties < 0) {
      return compiler_.json().any_object();
    }
    if (!all_.names.empty()) {
      names_ = name_language();
    }
    find_members();
    find_others();
    return sequence({bytes("{"), rest(0, 0), bytes("}")});
  }

 private:
  struct Member {
    ExpressionPtr text;  // name, colon and value
    bool required = false;
  };

  // The names that propertyNames allows.
  Regular::Ptr name_language() {
    Assertions names;
    for (const Schema& schema : all_.names) {
      compiler_.reader().add(schema, where_ + "/propertyNames", names);
    }
    require(names.any_of.empty() && names.one_of.empty() && !names.is_false,
            "{}: propertyNames takes pattern, format, lengths, enum and const alone", where_);
    Regular::Ptr language = string_language(names, where_ + "/propertyNames");
    if (names.values) {
      std::vector<std::string> texts;
      for (const Schema& value : *names.values) {
        if (value.is_string()) {
          texts.push_back(value.get<std::string>());
        }
      }
      language = Regular::intersection(*language, *Regular::of_texts(texts));
    }
    return language;
  }

  // All schemas of a property, combined.
  [[nodiscard]] Schema schema_of(const std::string& name) const {
    Schema schemas = Schema::array();
    for (const ObjectPart& part : all_.objects) {
      bool is_named = false;
      for (const auto& [known, schema] : part.properties) {
        if (known == name) {
          schemas.push_back(schema);
          is_named = true;
        }
      }
      for (const auto& [pattern, schema] : part.patterns) {
        if (pattern_language(pattern, where_)->accepts(name)) {
          schemas.push_back(schema);
          is_named = true;
        }
      }
      if (!is_named && part.additional) {
        schemas.push_back(*part.additional);
      }
    }
    if (schemas.empty()) {
      return true;
    }
    return schemas.size() == 1 ? schemas[0] : Schema{{"allOf", schemas}};
  }

  void find_members() {
    std::vector<std::string> names;
    const auto add = [&](const std::string& name) {
      if (std::ranges::find(names, name) == names.end()) {
        names.push_back(name);
      }
    };
    for (const ObjectPart& part : all_.objects) {
      for (const auto& [name, _] : part.properties) {
        add(name);
      }
    }
    std::ranges::for_each(all_.required, add);
    require(names.size() <= kMostProperties, "{}: more than {} properties", where_,
            kMostProperties);
    for (const std::string& name : names) {
      named_.push_back(name);
      const Schema schema = schema_of(name);
      const bool required = all_.required.contains(name);
      if (!required && (schema == false || (names_ && !names_->accepts(name)))) {
        continue;
      }
      ExpressionPtr value = names_ && !names_->accepts(name)
                                ? choice({})
                                : compiler_.member(schema, where_ + "/properties/" + name);
      members_.push_back(
          {sequence({bytes(Schema(name).dump()), compiler_.json().colon(), std::move(value)}),
           required});
    }
  }

  // Finds the schema of members without a listed name: those of patterns, or additional ones.
  void find_others() {
    Regular::Ptr unnamed = names_ ? names_ : Regular::of_length(0, -1);
    if (!named_.empty()) {
      unnamed = Regular::difference(*unnamed, *Regular::of_texts(named_));
    }
    std::vector<ExpressionPtr> kinds;
    const auto add = [&](const Regular::Ptr& names, const Schema& schema,
                         const std::string& where) {
      if (!names->is_empty() && schema != false) {
        const bool any = names_ == nullptr && named_.empty() && !has_patterns_;
        kinds.push_back(sequence({any ? compiler_.json().any_string() : json_string_of(names),
                                  compiler_.json().colon(), compiler_.member(schema, where)}));
      }
    };
    Regular::Ptr rest = unnamed;
    std::vector<Regular::Ptr> seen;
    for (const ObjectPart& part : all_.objects) {
      for (const auto& [pattern, schema] : part.patterns) {
        has_patterns_ = true;
        require(all_.objects.size() == 1, "{}: patternProperties within allOf is not supported",
                where_);
        const Regular::Ptr names =
            Regular::intersection(*unnamed, *pattern_language(pattern, where_));
        for (const Regular::Ptr& other : seen) {
          require(Regular::intersection(*other, *names)->is_empty(),
                  "{}: patternProperties of which two match one name are not supported", where_);
        }
        seen.push_back(names);
        rest = Regular::difference(*rest, *names);
        add(names, schema, where_ + "/patternProperties/" + pattern);
      }
    }
    if (const auto additional = additional_schema()) {
      add(rest, *additional, where_ + "/additionalProperties");
    }
    if (!kinds.empty()) {
      others_ = choice(std::move(kinds));
    }
  }

  // The schema of additional members; nullopt: they are not allowed.
  [[nodiscard]] std::optional<Schema> additional_schema() const {
    Schema schemas = Schema::array();
    bool names_any = false;
    for (const ObjectPart& part : all_.objects) {
      names_any = names_any || part.is_list;
      if (part.additional) {
        schemas.push_back(*part.additional);
      }
    }
    if (all_.closed || (schemas.empty() && names_any)) {
      return std::nullopt;
    }
    if (schemas.empty()) {
      return Schema(true);
    }
    return schemas.size() == 1 ? schemas[0] : Schema{{"allOf", schemas}};
  }

  // Caps a count of members at the largest value that matters for commas and limits.
  [[nodiscard]] int counted(int count) const {
    return std::min(count, std::max({1, all_.min_properties, all_.max_properties + 1}));
  }

  // The members from `next` on, after `count` members.
  ExpressionPtr rest(std::size_t next, int count) {
    count = counted(count);
    if (next == members_.size()) {
      return other_members(count);
    }
    const auto [place, is_new] = rests_.try_emplace({next, count}, -1);
    if (is_new) {
      place->second = compiler_.rules().declare(fmt::format("{}/{}", where_, next));
      const int rule = place->second;
      const Member& member = members_[next];
      std::vector<ExpressionPtr> ways;
      if (all_.max_properties < 0 || count < all_.max_properties) {
        std::vector<ExpressionPtr> parts{member.text, rest(next + 1, count + 1)};
        if (count > 0) {
          parts.insert(parts.begin(), compiler_.json().comma());
        }
        ways.push_back(sequence(std::move(parts)));
      }
      if (!member.required) {
        ways.push_back(rest(next + 1, count));
      }
      compiler_.rules().bodies[static_cast<std::size_t>(rule)] = choice(std::move(ways));
    }
    return reference(rests_.at({next, count}));
  }

  ExpressionPtr other_members(int count) {
    const int least = std::max(0, all_.min_properties - count);
    const int most = all_.max_properties < 0 ? -1 : all_.max_properties - count;
    if (!others_ || most == 0) {
      return least == 0 ? nothing() : choice({});
    }
    // Generated names may repeat, and then count once.
    require(least <= 1, "{}: minProperties is not supported for members that are not named",
            where_);
    const ExpressionPtr next = sequence({compiler_.json().comma(), others_});
    if (count > 0) {
      return repeat(next, least, most);
    }
    const ExpressionPtr some =
        sequence({others_, repeat(next, std::max(0, least - 1), most < 0 ? -1 : most - 1)});
    return least > 0 ? some : optional(some);
  }

  const Assertions& all_;
  std::string where_;
  MemberCompiler& compiler_;
  std::vector<std::string> named_;
  std::vector<Member> members_;
  ExpressionPtr others_;  // one member without a listed name; null: not allowed
  Regular::Ptr names_;    // null: all names
  bool has_patterns_ = false;
  std::map<std::pair<std::size_t, int>, int> rests_;  // rules by next member and count
};

}  // namespace

ExpressionPtr object_of(const Assertions& all, const std::string& where, MemberCompiler& compiler) {
  return ObjectCompiler(all, where, compiler).compile();
}

}  // namespace winnow::grammar
