#include "tokenizer/bpe.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

#include "checkpoint/json.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

constexpr char32_t kDirectCharacters = 0x180;  // covers the byte-level alphabet

// {"a b"} or {"a", "b"}.
std::pair<std::string, std::string> read_pair(const JsonField& field) {
  if (field.is_array()) {
    const std::vector<JsonField> parts = field.elements();
    if (parts.size() != 2) {
      field.expected("two tokens");
    }
    return {parts[0].as_string(), parts[1].as_string()};
  }
  const std::string& line = field.as_string();
  const std::size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
    fail("{}: expected two tokens with one space between, found {}", field.where(),
         in_quotes(line));
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

// The first line of a merges.txt, which some converters copy.
bool is_header(const nlohmann::json& line) {
  return line.is_string() && line.get_ref<const std::string&>().starts_with("#version");
}

std::string text_or_empty(const JsonField& field) {
  return field.is_null() ? std::string() : field.as_string();
}

}  // namespace

// One piece during merging: a linked list of symbols and a heap of possible merges.
class Bpe::Word {
 public:
  explicit Word(const MergeTable& merges) : merges_(merges) {}

  void clear() {
    symbols_.clear();
    heap_.clear();
  }
  void append(std::int32_t id) {
    const auto at = static_cast<std::int32_t>(symbols_.size());
    symbols_.push_back({id, at - 1, at + 1, -1});
  }

  void merge() {
    if (!symbols_.empty()) {
      symbols_.back().next = -1;
    }
    for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) {
      consider(static_cast<std::int32_t>(i), false);
    }
    std::make_heap(heap_.begin(), heap_.end());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Candidate best = heap_.back();
      heap_.pop_back();
      if (applies(best)) {
        apply(best);
      }
    }
  }

  void take(std::vector<std::int32_t>& out) const {
    for (std::int32_t i = symbols_.empty() ? -1 : 0; i >= 0; i = at(i).next) {
      out.push_back(at(i).id);
    }
  }

 private:
  struct Symbol {
    std::int32_t id;  // -1: merged into the previous symbol
    std::int32_t previous;
    std::int32_t next;
    std::int32_t with_next;  // the merge of both; -1: they do not merge
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t position;
    std::int32_t result;
    // The top of a heap is its greatest element: less means merges later.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return std::tie(a.rank, a.position) > std::tie(b.rank, b.position);
    }
  };

  Symbol& at(std::int32_t i) { return symbols_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const Symbol& at(std::int32_t i) const {
    return symbols_[static_cast<std::size_t>(i)];
  }

  // Adds the merge of the symbol at `i` with its successor to the heap, if there is one.
  void consider(std::int32_t i, bool keep_heap) {
    const Merge merge = merges_.find(at(i).id, at(at(i).next).id);
    at(i).with_next = merge.result;
    if (merge.result < 0) {
      return;
    }
    heap_.push_back({merge.rank, i, merge.result});
    if (keep_heap) {
      std::push_heap(heap_.begin(), heap_.end());
    }
  }

  // Whether the neighbours are still those that the merge was for (or others with the same result).
  [[nodiscard]] bool applies(const Candidate& candidate) const {
    const Symbol& symbol = at(candidate.position);
    return symbol.id >= 0 && symbol.with_next == candidate.result;
  }

  void apply(const Candidate& candidate) {
    const std::int32_t here = candidate.position;
    Symbol& gone = at(at(here).next);
    gone.id = -1;
    at(here).id = candidate.result;
    at(here).next = gone.next;
    at(here).with_next = -1;
    if (gone.next >= 0) {
      at(gone.next).previous = here;
      consider(here, true);
    }
    if (at(here).previous >= 0) {
      consider(at(here).previous, true);
    }
  }

  const MergeTable& merges_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

Bpe::Bpe(const JsonField& field)
    : ignore_merges_(field["ignore_merges"].as_bool_or(false)),
      byte_fallback_(field["byte_fallback"].as_bool_or(false)),
      fuse_unknown_(field["fuse_unk"].as_bool_or(false)) {
  if (const JsonField dropout = field["dropout"]; !dropout.is_null() && dropout.json() != 0.0) {
    dropout.unsupported("dropout");
  }
  prefix_ = text_or_empty(field["continuing_subword_prefix"]);
  suffix_ = text_or_empty(field["end_of_word_suffix"]);
  vocabulary_ = Vocabulary(field["vocab"]);
  if (const JsonField token = field["unk_token"]; !token.is_null()) {
    unknown_ = vocabulary_.find(token.as_string());
    missing_unknown_ = unknown_ ? "" : token.as_string();
  }
  read_merges(field["merges"]);
  read_bytes();
  find_whole();
}

void Bpe::read_merges(const JsonField& field) {
  const nlohmann::json& list = field.json();
  if (!list.is_array()) {
    field.expected("an array of merges");
  }
  merges_ = MergeTable(list.size());
  for (std::size_t rank = 0; rank < list.size(); ++rank) {
    if (is_header(list[rank])) {
      continue;
    }
    const auto [left, right] = read_pair(JsonField(list[rank], field.where()));
    const auto id_of = [&](const std::string& token) {
      const std::optional<std::int32_t> id = vocabulary_.find(token);
      if (!id) {
        fail("{}[{}]: {} is not in model.vocab", field.where(), rank, in_quotes(token));
      }
      return *id;
    };
    const std::int32_t left_id = id_of(left);
    const std::int32_t right_id = id_of(right);
    require(right.size() >= prefix_.size(), "{}[{}]: {} does not begin with {}", field.where(),
            rank, in_quotes(right), in_quotes(prefix_));
    const std::int32_t joined = id_of(left + right.substr(prefix_.size()));
    merges_.insert(left_id, right_id, {static_cast<std::uint32_t>(rank), joined});
  }
}

void Bpe::read_bytes() {
  for (unsigned byte = 0; byte < 256; ++byte) {
    bytes_.push_back(vocabulary_.find(fmt::format("<0x{:02X}>", byte)));
  }
  for (char32_t code = 0; code < kDirectCharacters; ++code) {
    std::string character;
    append_utf8(code, character);
    characters_.push_back(vocabulary_.find(character));
  }
}

void Bpe::find_whole() {
  whole_.resize(static_cast<std::size_t>(vocabulary_.size()), ignore_merges_);
  Word word(merges_);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; !ignore_merges_ && id < vocabulary_.size(); ++id) {
    if (const std::string* token = vocabulary_.token(id)) {
      ids.clear();
      merge(*token, /*lenient=*/true, word);
      word.take(ids);
      whole_[static_cast<std::size_t>(id)] = ids.size() == 1 && ids.front() == id;
    }
  }
}

bool Bpe::append_bytes(std::string_view character, Word& word) const {
  const auto token = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
  if (!byte_fallback_ ||
      !std::all_of(character.begin(), character.end(), [&](char c) { return token(c); })) {
    return false;
  }
  for (const char c : character) {
    word.append(*token(c));
  }
  return true;
}

std::string Bpe::marked(std::string_view character, bool first, bool last) const {
  return std::string(first ? "" : prefix_).append(character).append(last ? suffix_ : "");
}

// An unknown token waits for the next character that has a token; byte tokens come before it, as
// in Hugging Face's implementation.
void Bpe::append_characters(std::string_view piece, bool lenient, Word& word) const {
  const bool marks = !prefix_.empty() || !suffix_.empty();
  bool waits = false;
  for (bool first = true; !piece.empty(); first = false) {
    const Utf8Step step = utf8_step(piece);
    std::string_view character = piece.substr(0, step.length);
    piece.remove_prefix(step.length);
    std::string with_marks;
    if (marks) {
      character = with_marks = marked(character, first, piece.empty());
    }
    const std::optional<std::int32_t> id = !marks && step.code < kDirectCharacters
                                               ? characters_[step.code]
                                               : vocabulary_.find(character);
    if (id) {
      if (std::exchange(waits, false)) {
        word.append(*unknown_);
      }
      word.append(*id);
    } else if (!append_bytes(character, word)) {
      require(lenient || missing_unknown_.empty(),
              "{} is no token, nor is model.unk_token, {}, in model.vocab", in_quotes(character),
              in_quotes(missing_unknown_));
      if (waits && !fuse_unknown_) {
        word.append(*unknown_);
      }
      waits = unknown_.has_value();
    }
  }
  if (waits) {
    word.append(*unknown_);
  }
}

void Bpe::encode(const Pieces& pieces, std::vector<std::int32_t>& out) const {
  Word word(merges_);
  std::unique_ptr<WordMemo> memo = memos_.take();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::string_view piece = pieces[i];
    const std::span<const std::int32_t> known = memo->find(piece);
    if (!known.empty()) {
      out.insert(out.end(), known.begin(), known.end());
      continue;
    }
    const std::size_t before = out.size();
    encode(piece, word, out);
    memo->put(piece, std::span(out).subspan(before));
  }
  memos_.give_back(std::move(memo));
}

void Bpe::encode(std::string_view piece, Word& word, std::vector<std::int32_t>& out) const {
  require(piece.size() <= std::numeric_limits<std::int32_t>::max(),
          "a text of {} bytes is too long to tokenize; expected less than 2 GiB", piece.size());
  if (const auto id = vocabulary_.find(piece); id && whole_[static_cast<std::size_t>(*id)]) {
    out.push_back(*id);
  } else {
    merge(piece, /*lenient=*/false, word);
    word.take(out);
  }
}

void Bpe::merge(std::string_view piece, bool lenient, Word& word) const {
  word.clear();
  append_characters(piece, lenient, word);
  word.merge();
}

}  // namespace winnow
