#include "api/llm_stream.h"

namespace winnow {

Stream::Stream(std::unique_ptr<State> state) : state_(std::move(state)) {}
Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;

bool Stream::advance() {
  return state_->batch.advance(*state_->answer);
}

std::vector<Piece> Stream::take() {
  return state_->batch.take(*state_->answer);
}

void Stream::cancel() {
  state_->batch.cancel(state_->answer);
}

Progress Stream::progress() const {
  return state_->batch.progress(*state_->answer);
}

CacheStats Stream::cache() const {
  return state_->batch.cache(state_->answer);
}

Generation Stream::finish() {
  Generation result = state_->batch.finish(*state_->answer);
  if (state_->prompt_cache) {
    state_->prompt_cache->save();
    result.prompt_cache_warning = state_->prompt_cache->warning();
  }
  return result;
}

}  // namespace winnow
