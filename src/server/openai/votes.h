// Several chains over one prompt; the majority's answer is returned.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "answers/majority.h"
#include "engine/request.h"
#include "server/openai/vote_fields.h"

namespace winnow::server {

class Vote {
 public:
  /// `heads`: the cache's, over all layers.
  Vote(const VoteRequest& request, int heads);

  /// A chain has ended; `text` follows its thought.
  void end(std::size_t chain, const std::string& text, engine::FinishReason finish, int tokens);
  [[nodiscard]] bool has_ended(std::size_t chain) const;
  /// Adds the entries that its cache read and held.
  void count(std::size_t chain, engine::CacheReads reads) {
    chains_[chain].reads = std::move(reads);
  }

  /// Whether the chains that still run can no longer change the majority.
  [[nodiscard]] bool is_decided() const;
  /// The chain whose text is the answer: the first of the majority. Without any vote, the first.
  [[nodiscard]] std::size_t chosen() const;
  /// The report for the client; reads and entries are means over the heads.
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  struct Chain {
    std::string text = {};
    std::string vote = {};
    engine::FinishReason finish = engine::FinishReason::none;
    int tokens = 0;
    engine::CacheReads reads = {};
  };

  [[nodiscard]] std::vector<answers::Opinion> opinions() const;

  VoteRequest request_;
  double heads_;
  std::vector<Chain> chains_;
};

}  // namespace winnow::server
