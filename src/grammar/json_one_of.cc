#include "grammar/json_one_of.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace winnow::grammar {
namespace {

constexpr int kMostCompared = 8;

class Comparison {
 public:
  Comparison(const SchemaReader& reader, std::string where)
      : reader_(reader), where_(std::move(where)) {}

  bool are_disjoint(const Assertions& a, const Assertions& b, int depth) const {
    if (a.is_false || b.is_false || (a.types & b.types) == 0) {
      return true;
    }
    if (a.values && b.values) {
      return std::ranges::none_of(*a.values, [&](const Schema& value) {
        return std::ranges::find(*b.values, value) != b.values->end();
      });
    }
    if (a.values || b.values) {
      return false;
    }
    for (const std::uint8_t type : {kNull, kBoolean, kArray}) {
      if ((a.types & b.types & type) != 0) {
        return false;
      }
    }
    const auto share = [&](int types) { return (a.types & b.types & types) != 0; };
    return (!share(kString) || have_disjoint_strings(a, b)) &&
           (!share(kNumber | kInteger) || have_disjoint_numbers(a, b)) &&
           (!share(kObject) || have_disjoint_objects(a, b, depth));
  }

 private:
  bool have_disjoint_strings(const Assertions& a, const Assertions& b) const {
    return Regular::intersection(*string_language(a, where_), *string_language(b, where_))
        ->is_empty();
  }

  static bool have_disjoint_numbers(const Assertions& a, const Assertions& b) {
    NumberBounds bounds = a.numbers;
    bounds.lowest.insert(bounds.lowest.end(), b.numbers.lowest.begin(), b.numbers.lowest.end());
    bounds.highest.insert(bounds.highest.end(), b.numbers.highest.begin(), b.numbers.highest.end());
    return numbers_within(bounds)->is_empty();
  }

  // Whether one requires a member that the other forbids, or allows only with other values.
  bool have_disjoint_objects(const Assertions& a, const Assertions& b, int depth) const {
    return needs_what_is_other(a, b, depth) || needs_what_is_other(b, a, depth);
  }

  bool needs_what_is_other(const Assertions& a, const Assertions& b, int depth) const {
    return std::ranges::any_of(a.required, [&](const std::string& name) {
      if (is_closed_without(b, name)) {
        return true;
      }
      const auto of_a = property_of(a, name);
      const auto of_b = property_of(b, name);
      if (!of_a || !of_b || depth == kMostCompared) {
        return false;
      }
      Assertions x;
      Assertions y;
      reader_.add(*of_a, where_, x);
      reader_.add(*of_b, where_, y);
      return x.any_of.empty() && x.one_of.empty() && y.any_of.empty() && y.one_of.empty() &&
             are_disjoint(x, y, depth + 1);
    });
  }

  static std::optional<Schema> property_of(const Assertions& all, const std::string& name) {
    Schema schemas = Schema::array();
    for (const ObjectPart& part : all.objects) {
      for (const auto& [known, schema] : part.properties) {
        if (known == name) {
          schemas.push_back(schema);
        }
      }
    }
    return schemas.empty() ? std::nullopt : std::optional(Schema{{"allOf", schemas}});
  }

  // Whether the schema itself forbids a member; that other members are not generated is no proof.
  static bool is_closed_without(const Assertions& all, const std::string& name) {
    return std::ranges::any_of(all.objects, [&](const ObjectPart& part) {
      return part.additional && *part.additional == false && part.patterns.empty() &&
             std::ranges::none_of(part.properties,
                                  [&](const auto& property) { return property.first == name; });
    });
  }

  const SchemaReader& reader_;
  std::string where_;
};

}  // namespace

void require_disjoint(const std::vector<Assertions>& branches, const std::string& where,
                      MemberCompiler& compiler) {
  const Comparison comparison(compiler.reader(), where);
  for (std::size_t i = 0; i < branches.size(); ++i) {
    for (std::size_t j = i + 1; j < branches.size(); ++j) {
      require(
          branches[i].any_of.empty() && branches[j].any_of.empty() &&
              comparison.are_disjoint(branches[i], branches[j], 0),
          "{}: schemas {} and {} may both accept one value; use anyOf, or separate them by type, "
          "by values of a required property or by required properties that the other forbids",
          where, i, j);
    }
  }
}

}  // namespace winnow::grammar
