#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/error.h"
#include "checkpoint/json.h"
#include "eval/ruler/documents.h"

namespace winnow::eval {
namespace {

using nlohmann::json;

std::string text_under(const JsonObject& object, const std::string& key) {
  const json* found = object.find(key);
  if (found == nullptr || !found->is_string()) {
    object.reject(key, "a text");
  }
  return found->get<std::string>();
}

const json& list_under(const JsonObject& object, const char* key) {
  const json* found = object.find(key);
  if (found == nullptr || !found->is_array()) {
    object.reject(key, "a list");
  }
  return *found;
}

std::string item_name(const std::string& where, const std::string& key, std::size_t index) {
  return fmt::format("{}: {}[{}]", where, key, index);
}

std::vector<JsonObject> objects_under(const JsonObject& object, const char* key) {
  std::vector<JsonObject> objects;
  for (const json& item : list_under(object, key)) {
    objects.emplace_back(item, item_name(object.where(), key, objects.size()));
  }
  return objects;
}

// Numbers the distinct documents in order of first appearance.
class Numbering {
 public:
  explicit Numbering(std::set<std::string> documents) {
    for (auto& document : documents) {
      numbers_.emplace(document, numbers_.size());
    }
  }

  [[nodiscard]] std::size_t of(const std::string& document) const { return numbers_.at(document); }
  [[nodiscard]] std::vector<std::string> documents() const {
    std::vector<std::string> all;
    for (const auto& [document, number] : numbers_) {
      all.push_back(document);
    }
    return all;
  }

 private:
  std::map<std::string, std::size_t> numbers_;
};

// "Title\nSentence. Sentence." from a pair of a title and its sentences.
std::string hotpot_document(const json& pair, const std::string& where) {
  const bool is_pair =
      pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_array() &&
      std::ranges::all_of(pair[1], [](const json& sentence) { return sentence.is_string(); });
  require(is_pair, "{}: expected a title and a list of sentences, found {}", where,
          described(pair));
  std::string text = pair[0].get<std::string>() + "\n";
  for (const json& sentence : pair[1]) {
    text += sentence.get<std::string>();
  }
  return text;
}

std::vector<std::string> hotpot_documents(const JsonObject& entry) {
  std::vector<std::string> documents;
  const json& context = list_under(entry, "context");
  if (context.empty()) {
    entry.reject("context", "at least one document");
  }
  for (const json& pair : context) {
    documents.push_back(
        hotpot_document(pair, item_name(entry.where(), "context", documents.size())));
  }
  return documents;
}

std::vector<std::string> squad_answers(const JsonObject& question) {
  std::vector<std::string> answers;
  if (!question.boolean("is_impossible", false)) {
    for (const JsonObject& answer : objects_under(question, "answers")) {
      answers.push_back(text_under(answer, "text"));
    }
  }
  return answers;
}

void require_questions(const DocumentSet& set) {
  require(!set.questions.empty(), "{}: no question with an answer", set.file);
}

}  // namespace

DocumentSet read_squad(const std::filesystem::path& file) {
  const json root = parse_json(read_text_file(file), file.string());
  const auto articles = objects_under(JsonObject(root, file.string()), "data");
  std::set<std::string> contexts;
  for (const JsonObject& article : articles) {
    for (const JsonObject& paragraph : objects_under(article, "paragraphs")) {
      contexts.insert(text_under(paragraph, "context"));
    }
  }
  const Numbering numbering(std::move(contexts));
  DocumentSet set{file.string(), numbering.documents(), {}};
  for (const JsonObject& article : articles) {
    const auto paragraphs = objects_under(article, "paragraphs");
    std::vector<std::size_t> of_article;
    for (const JsonObject& paragraph : paragraphs) {
      of_article.push_back(numbering.of(text_under(paragraph, "context")));
    }
    for (std::size_t i = 0; i < paragraphs.size(); ++i) {
      for (const JsonObject& question : objects_under(paragraphs[i], "qas")) {
        std::vector<std::string> answers = squad_answers(question);
        if (!answers.empty()) {
          set.questions.push_back(
              {text_under(question, "question"), std::move(answers), {of_article[i]}, of_article});
        }
      }
    }
  }
  require_questions(set);
  return set;
}

DocumentSet read_hotpot(const std::filesystem::path& file) {
  const json root = parse_json(read_text_file(file), file.string());
  require(root.is_array(), "{}: expected a list of questions, found {}", file.string(),
          described(root));
  std::vector<JsonObject> entries;
  std::set<std::string> contexts;
  for (const json& item : root) {
    const auto& entry =
        entries.emplace_back(item, fmt::format("{}: [{}]", file.string(), entries.size()));
    std::ranges::copy(hotpot_documents(entry), std::inserter(contexts, contexts.end()));
  }
  const Numbering numbering(std::move(contexts));
  DocumentSet set{file.string(), numbering.documents(), {}};
  for (const JsonObject& entry : entries) {
    DocumentQuestion question{text_under(entry, "question"), {text_under(entry, "answer")}, {}, {}};
    for (const std::string& document : hotpot_documents(entry)) {
      question.own.push_back(numbering.of(document));
    }
    set.questions.push_back(std::move(question));
  }
  require_questions(set);
  return set;
}

}  // namespace winnow::eval
