#include "engine/ranks/group.h"

#include <exception>
#include <string_view>

#include "base/error.h"
#include "base/error_text.h"

namespace winnow::engine {

Group::Group(std::unique_ptr<const Backend> local, model::ModelSpec whole,
             parallel::Communicator& ranks)
    : local_(std::move(local)),
      whole_(std::move(whole)),
      shape_(model::cache_shape(whole_, ranks.size())),
      ranks_(ranks),
      member_(*local_, whole_, {0, ranks.size()}) {
  for (int rank = 0; rank < ranks.size(); ++rank) {
    shapes_.push_back(model::cache_shape(model::shard_spec(whole_, {rank, ranks.size()})));
  }
}

Group::~Group() {
  try {
    ask(RankCommand::end, [](MessageWriter&) {});
  } catch (const std::exception&) {  // a rank has failed: the group has ended
  }
}

std::vector<RankAnswer> Group::ask(RankCommand command,
                                   const std::function<void(MessageWriter&)>& say,
                                   const StepResults* results) {
  MessageWriter message;
  message.put(command);
  say(message);
  const std::lock_guard lock(mutex_);
  ++asked_;
  std::vector<RankAnswer> answers;
  for (auto& bytes : tell(message.bytes(), results)) {
    answers.emplace_back(std::move(bytes));
  }
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    if (!answers[rank].take<bool>()) {
      const auto text = answers[rank].take_all<char>();
      fail("rank {}: {}", rank, std::string_view(text.data(), text.size()));
    }
  }
  return answers;
}

std::vector<std::vector<std::byte>> Group::tell(std::span<const std::byte> message,
                                                const StepResults* results) {
  send_to_all(ranks_, message);
  try {
    return ranks_.gather(member_.obey(message, results).bytes());
  } catch (const std::exception& error) {
    ranks_.fail(error_text(error));
    ranks_.meet();  // throws the first failure, which may have caused this one
    throw;
  }
}

}  // namespace winnow::engine
