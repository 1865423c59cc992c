#include "server/openai/votes.h"

#include <algorithm>

#include "answers/answer_check.h"
#include "engine/read_counter.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;
using engine::FinishReason;

std::string trimmed(const std::string& text) {
  constexpr const char* kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string::npos
             ? ""
             : text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

bool are_equal(std::string_view a, std::string_view b) {
  return a == b;
}

}  // namespace

Vote::Vote(const VoteRequest& request, int heads)
    : request_(request), heads_(heads), chains_(static_cast<std::size_t>(request.chains)) {}

void Vote::end(std::size_t chain, const std::string& text, FinishReason finish, int tokens) {
  chains_[chain] = {.text = text, .finish = finish, .tokens = tokens};
  if (finish != FinishReason::cancelled) {
    chains_[chain].vote = request_.by_text
                              ? trimmed(text)
                              : answers::vote_of(text, /*whole=*/finish == FinishReason::stop);
  }
}

bool Vote::has_ended(std::size_t chain) const {
  return chains_[chain].finish != FinishReason::none;
}

std::vector<answers::Opinion> Vote::opinions() const {
  std::vector<std::string> votes;
  for (const Chain& chain : chains_) {
    votes.push_back(chain.vote);
  }
  return answers::opinions(votes, request_.by_text ? are_equal : answers::answers_agree);
}

bool Vote::is_decided() const {
  const auto open = std::ranges::count(chains_, FinishReason::none, &Chain::finish);
  return answers::is_decided(opinions(), static_cast<std::size_t>(open));
}

std::size_t Vote::chosen() const {
  const answers::Opinion most = answers::majority(opinions());
  return most.empty() ? 0 : most.front();
}

Json Vote::json() const {
  const answers::Opinion most = answers::majority(opinions());
  Json chains = Json::array();
  std::vector<engine::CacheReads> reads;
  std::int64_t read = 0;
  std::int64_t prompt = 0;
  for (const Chain& chain : chains_) {
    const bool cut = chain.finish == FinishReason::cancelled;
    const auto peak = engine::peak_entries(std::span(&chain.reads, 1));
    chains.push_back({{"text", chain.text},
                      {"vote", chain.vote.empty() ? Json() : Json(chain.vote)},
                      {"finish_reason", cut ? "cut" : engine::finish_name(chain.finish)},
                      {"tokens", chain.tokens},
                      {"kv_reads", static_cast<double>(chain.reads.generated) / heads_},
                      {"peak_entries", static_cast<double>(peak) / heads_}});
    read += chain.reads.generated;
    prompt += chain.reads.prompt;
    reads.push_back(chain.reads);
  }
  return {{"answer", most.empty() ? Json() : Json(chains_[most.front()].vote)},
          {"agree", most},
          {"votes", most.size()},
          {"kv_reads", static_cast<double>(read) / heads_},
          {"prompt_reads", static_cast<double>(prompt) / heads_},
          {"peak_entries", static_cast<double>(engine::peak_entries(reads)) / heads_},
          {"chains", std::move(chains)}};
}

}  // namespace winnow::server
