#include "tokenizer/post_processor.h"

#include "checkpoint/json.h"
#include "tokenizer/component_depth.h"

namespace winnow {
namespace {

// ["<s>", 0]
std::int32_t read_token(const JsonField& field) {
  const std::vector<JsonField> parts = field.elements();
  if (parts.size() != 2) {
    field.expected("a token and its id");
  }
  return parts[1].as_id();
}

}  // namespace

PostProcessor::PostProcessor(const JsonField& field) {
  if (!field.is_null()) {
    add(field, 0);
  }
}

void PostProcessor::add(const JsonField& field, int depth) {
  check_depth(field, depth);
  const std::string& type = field.type();
  if (type == "Sequence") {
    for (const JsonField& step : field["processors"].elements()) {
      add(step, depth + 1);
    }
  } else if (type == "TemplateProcessing") {
    add_template(field);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    prefix_.insert(prefix_.begin(), read_token(field["cls"]));
    suffix_.push_back(read_token(field["sep"]));
  } else if (type != "ByteLevel") {
    field.unsupported(fmt::format("post_processor {}", in_quotes(type)));
  }
}

void PostProcessor::add_template(const JsonField& field) {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
  bool seen = false;
  for (const JsonField& item : field["single"].elements()) {
    const JsonField special = item["SpecialToken"];
    if (special.is_null()) {
      require(item["Sequence"].is_object() && !seen,
              "{}: expected special tokens and the sequence A once", field["single"].where());
      seen = true;
      continue;
    }
    const JsonField token = field["special_tokens"][special["id"].as_string()];
    for (const JsonField& id : token["ids"].elements()) {
      (seen ? after : before).push_back(id.as_id());
    }
  }
  require(seen, "{}: the sequence A is missing", field["single"].where());
  prefix_.insert(prefix_.begin(), before.begin(), before.end());
  suffix_.insert(suffix_.end(), after.begin(), after.end());
}

}  // namespace winnow
