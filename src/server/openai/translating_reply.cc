#include "server/openai/translating_reply.h"

#include <fmt/format.h>

#include "checkpoint/json_text.h"
#include "server/http/api_error.h"

namespace winnow::server {

void TranslatingReply::send(HttpResponse response) {
  const Json answer = json_from<Json>(response.body);
  constexpr int kFirstError = 400;
  response.body = dump(response.status >= kFirstError ? error(response.status, answer.at("error"))
                                                      : whole(answer));
  reply_->send(std::move(response));
}

void TranslatingReply::write(std::string piece) {
  constexpr std::string_view kData = "data: ";
  constexpr std::string_view kEnd = "\n\n";
  pending_ += piece;
  std::size_t begin = 0;
  for (auto end = pending_.find(kEnd); end != std::string::npos; end = pending_.find(kEnd, begin)) {
    const std::string_view text =
        std::string_view(pending_).substr(begin + kData.size(), end - begin - kData.size());
    begin = end + kEnd.size();
    const Json chunk = text == "[DONE]" ? Json() : json_from<Json>(text);
    if (chunk.contains("error")) {
      tell_error(chunk["error"]);
    } else {
      tell(chunk);
    }
  }
  pending_.erase(0, begin);
  if (!events_.empty()) {
    reply_->write(std::exchange(events_, {}));
  }
}

void TranslatingReply::event(std::string_view name, const Json& data) {
  events_ += fmt::format("event: {}\ndata: {}\n\n", name, dump(data));
}

}  // namespace winnow::server
