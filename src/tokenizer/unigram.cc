#include "tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "checkpoint/json.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

constexpr double kUnknownPenalty = 10.0;

std::uint64_t trie_edge(std::int32_t node, char c) {
  return std::uint64_t{static_cast<std::uint32_t>(node)} << 8 | static_cast<unsigned char>(c);
}

}  // namespace

Unigram::Unigram(const JsonField& field)
    : byte_fallback_(field["byte_fallback"].as_bool_or(false)),
      fuse_unknown_(field["fuse_unk"].as_bool_or(true)),
      where_(field.where()) {
  std::vector<std::string> tokens;
  double lowest = 0;
  for (const JsonField& entry : field["vocab"].elements()) {
    const std::vector<JsonField> parts = entry.elements();
    if (parts.size() != 2 || !parts[1].json().is_number()) {
      entry.expected("a token and its score");
    }
    tokens.push_back(parts[0].as_string());
    scores_.push_back(parts[1].json().get<double>());
    lowest = std::min(scores_.size() == 1 ? scores_.back() : lowest, scores_.back());
  }
  unknown_score_ = lowest - kUnknownPenalty;
  vocabulary_ = Vocabulary(std::move(tokens));
  for (std::int32_t id = 0; id < vocabulary_.size(); ++id) {
    insert(*vocabulary_.token(id), id);
  }
  if (const JsonField unknown = field["unk_id"]; !unknown.is_null()) {
    unknown_ = unknown.as_id();
    require(*unknown_ < vocabulary_.size(), "{}: expected an id below {}, got {}", unknown.where(),
            vocabulary_.size(), *unknown_);
  }
}

void Unigram::insert(std::string_view token, std::int32_t id) {
  std::int32_t node = 0;
  for (const char c : token) {
    const auto [child, added] =
        edges_.try_emplace(trie_edge(node, c), static_cast<std::int32_t>(tokens_.size()));
    if (added) {
      tokens_.push_back(-1);
    }
    node = child->second;
  }
  tokens_[static_cast<std::size_t>(node)] = id;
}

// Indexed by the byte where a token ends.
std::vector<Unigram::Node> Unigram::best_ways(std::string_view piece) const {
  std::vector<Node> ways(piece.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, std::int32_t id, double score) {
    score += ways[begin].score;
    if (ways[end].id < 0 || score > ways[end].score) {
      ways[end] = {score, begin, id};
    }
  };
  for (std::size_t begin = 0; begin < piece.size(); begin += utf8_length(piece[begin])) {
    const std::size_t character = begin + utf8_length(piece[begin]);
    bool has_character = false;
    std::int32_t node = 0;
    for (std::size_t end = begin; end < piece.size();) {
      const auto child = edges_.find(trie_edge(node, piece[end]));
      if (child == edges_.end()) {
        break;
      }
      node = child->second;
      ++end;
      if (const std::int32_t id = tokens_[static_cast<std::size_t>(node)]; id >= 0) {
        offer(begin, end, id, scores_[static_cast<std::size_t>(id)]);
        has_character = has_character || end == character;
      }
    }
    if (!has_character) {
      require(unknown_.has_value(), "{}: {} is no token, and there is no unk_id for it", where_,
              in_quotes(piece.substr(begin, character - begin)));
      offer(begin, character, *unknown_, unknown_score_);
    }
  }
  return ways;
}

bool Unigram::append_bytes(std::string_view text, std::vector<std::int32_t>& out) const {
  const std::size_t before = out.size();
  for (const char c : text) {
    const auto id = vocabulary_.find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c)));
    if (!byte_fallback_ || !id) {
      out.resize(before);
      return false;
    }
    out.push_back(*id);
  }
  return true;
}

void Unigram::encode(std::string_view piece, std::vector<std::int32_t>& out) const {
  require(piece.size() <= std::numeric_limits<std::int32_t>::max(),
          "a text of {} bytes is too long to tokenize; expected less than 2 GiB", piece.size());
  const std::vector<Node> ways = best_ways(piece);
  std::vector<std::pair<std::size_t, std::size_t>> parts;  // from the last to the first
  for (std::size_t end = piece.size(); end > 0;) {
    const Node& node = ways[end];
    const bool fuses = fuse_unknown_ && node.id == unknown_ && !parts.empty() &&
                       ways[parts.back().second].id == unknown_;
    if (fuses) {
      parts.back().first = node.begin;
    } else {
      parts.emplace_back(node.begin, end);
    }
    end = node.begin;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    const std::string_view text = piece.substr(part->first, part->second - part->first);
    if (const auto id = vocabulary_.find(text)) {
      out.push_back(*id);
    } else if (!append_bytes(text, out)) {
      out.push_back(unknown_.value());
    }
  }
}

void Unigram::encode(const Pieces& pieces, std::vector<std::int32_t>& out) const {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    encode(pieces[i], out);
  }
}

}  // namespace winnow
