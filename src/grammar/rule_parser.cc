#include "grammar/rule_parser.h"

#include <vector>

namespace winnow::grammar {
namespace {

constexpr int kMostNested = 128;

using Kind = Expression::Kind;

bool begins_with(const ExpressionPtr& part, int rule) {
  return part->kind == Kind::rule && part->rule == rule;
}

// The rest of an alternative that begins with `rule` itself; nullptr: it does not.
ExpressionPtr behind_itself(const ExpressionPtr& alternative, int rule) {
  if (alternative->kind != Kind::sequence || alternative->parts.empty() ||
      !begins_with(alternative->parts.front(), rule)) {
    return nullptr;
  }
  return sequence({alternative->parts.begin() + 1, alternative->parts.end()});
}

}  // namespace

ExpressionPtr RuleParser::alternatives(bool nested) {
  require(++depth_ <= kMostNested, "{}: more than {} groups in one another", in_.where(),
          kMostNested);
  std::vector<ExpressionPtr> parts;
  do {
    parts.push_back(alternative(nested));
    if (!nested && !in_.sees("|")) {
      (void)goes_on();
    }
  } while (in_.take("|"));
  --depth_;
  return choice(std::move(parts));
}

ExpressionPtr RuleParser::alternative(bool nested) {
  std::vector<ExpressionPtr> parts;
  for (;;) {
    in_.skip(/*lines=*/nested || parts.empty());
    ExpressionPtr part = element();
    if (part == nullptr && (nested || !goes_on() || in_.sees("|"))) {
      return parts.empty() ? nothing() : sequence(std::move(parts));
    }
    if (part != nullptr) {
      parts.push_back(repeated(std::move(part)));
    }
  }
}

ExpressionPtr RuleParser::repeated(ExpressionPtr part) {
  for (;;) {
    in_.skip(/*lines=*/false);
    if (in_.take("*")) {
      part = repeat(std::move(part), 0, -1);
    } else if (in_.take("+")) {
      part = repeat(std::move(part), 1, -1);
    } else if (in_.take("?")) {
      part = optional(std::move(part));
    } else if (in_.take("{")) {
      in_.skip(true);
      const int least = in_.integer();
      in_.skip(true);
      const bool comma = in_.take(",");
      in_.skip(true);
      const int most = comma ? in_.integer() : least;
      in_.skip(true);
      require(in_.take("}") && (least >= 0 || most >= 0) && (most < 0 || least <= most),
              "{}: expected {{m}}, {{m,}} or {{m,n}}", in_.where());
      part = repeat(std::move(part), std::max(0, least), most);
    } else if (in_.take("~")) {
      in_.skip(false);
      const int least = in_.integer();
      in_.skip(false);
      const int most = in_.take("..") ? (in_.skip(false), in_.integer()) : least;
      require(least >= 0 && most >= least, "{}: expected ~ n or ~ n..m", in_.where());
      part = repeat(std::move(part), least, most);
    } else {
      return part;
    }
  }
}

ExpressionPtr RuleParser::group(std::string_view end) {
  ExpressionPtr inner = alternatives(/*nested=*/true);
  in_.skip(true);
  require(in_.take(end), "{}: expected {}", in_.where(), end);
  return inner;
}

int RuleParser::rule(const std::string& name) {
  const auto [place, is_new] = ids_.try_emplace(name, -1);
  if (is_new) {
    place->second = rules_.declare(name);
  }
  return place->second;
}

void RuleParser::define(const std::string& name, ExpressionPtr body) {
  const int id = rule(name);
  require(rules_.bodies[static_cast<std::size_t>(id)] == nullptr, "{}: rule {} is there already",
          in_.where(), name);
  std::vector<ExpressionPtr> begins;
  std::vector<ExpressionPtr> tails;
  for (const ExpressionPtr& part : body->kind == Kind::choice ? body->parts : std::vector{body}) {
    if (ExpressionPtr tail = behind_itself(part, id)) {
      tails.push_back(std::move(tail));
    } else {
      begins.push_back(part);
    }
  }
  if (!tails.empty()) {
    body = sequence({choice(std::move(begins)), repeat(choice(std::move(tails)), 0, -1)});
  }
  rules_.bodies[static_cast<std::size_t>(id)] = std::move(body);
}

RuleSet RuleParser::finish(const std::string& root) {
  require(ids_.contains(root), "the grammar has no rule {}", root);
  for (std::size_t i = 0; i < rules_.bodies.size(); ++i) {
    require(rules_.bodies[i] != nullptr, "the grammar has no rule {}", rules_.names[i]);
  }
  rules_.root = ids_.at(root);
  return std::move(rules_);
}

}  // namespace winnow::grammar
