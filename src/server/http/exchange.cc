#include "server/http/exchange.h"

#include <fmt/format.h>

#include <boost/asio/defer.hpp>
#include <boost/asio/dispatch.hpp>
#include <iterator>
#include <string_view>

namespace winnow::server {
namespace {

constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace

void Exchange::run(std::function<void()> work) {
  boost::asio::defer(strand_, [self = shared_from_this(), work = std::move(work)]() mutable {
    if (self->handled_) {
      work();
    } else {
      self->waiting_.push_back(std::move(work));
    }
  });
}

void Exchange::call(const std::function<void()>& handler) {
  // Before all that the handler causes: a strand keeps the order of what one thread gives it.
  on_strand([this] { handled_ = false; });
  handler();
  on_strand([this] {
    handled_ = true;
    for (const auto& work : std::exchange(waiting_, {})) {
      work();
    }
    if (gone_) {
      tell_gone();
    }
  });
}

// Like run(), but runs at once if the caller is already on the strand.
template <class Work>
void Exchange::on_strand(Work work) {
  boost::asio::dispatch(strand_,
                        [self = shared_from_this(), work = std::move(work)]() mutable { work(); });
}

void Exchange::send(HttpResponse response) {
  on_strand([this, response = std::move(response)] {
    append_head(response, /*whole=*/true);
    if (!head_only_) {
      unsent_ += response.body;
    }
    close();
  });
}

void Exchange::begin(HttpResponse head) {
  on_strand([this, head = std::move(head)] {
    append_head(head, /*whole=*/false);
    append_piece(head.body);
    send_or_ring();
  });
}

void Exchange::write(std::string piece) {
  on_strand([this, piece = std::move(piece)] {
    append_piece(piece);
    if (unsent_.size() > config_.max_unsent_bytes) {
      lose(Outcome::slow);
    }
    send_or_ring();
  });
}

void Exchange::end() {
  on_strand([this] {
    if (chunked_ && !head_only_) {
      unsent_ += kLastChunk;
    }
    close();
  });
}

void Exchange::cut() {
  on_strand([this] { outcome_ = gone_ ? outcome_ : Outcome::cut; });
  end();
}

// The callback for a disconnect may hold a reference to this exchange, so it is released.
void Exchange::close() {
  ended_ = true;
  on_gone_ = {};
  ring();
}

void Exchange::on_gone(std::function<void()> gone) {
  on_strand([this, gone = std::move(gone)]() mutable {
    if (!ended_) {
      on_gone_ = std::move(gone);
    }
    if (gone_ && handled_) {
      tell_gone();
    }
  });
}

void Exchange::tell_gone() {
  if (const auto gone = std::exchange(on_gone_, {})) {
    gone();
  }
}

void Exchange::lose(Outcome why) {
  if (gone_ || (ended_ && unsent_.empty())) {
    return;
  }
  gone_ = true;
  outcome_ = why;
  keep_alive_ = false;
  if (handled_) {
    tell_gone();
  }
  ring();
}

void Exchange::append_head(const HttpResponse& head, bool whole) {
  status_ = head.status;
  if (!whole && !chunked_) {
    keep_alive_ = false;  // the body ends when the connection closes
  }
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: winnow\r\nX-Request-Id: {}\r\n",
                                 head.status, reason_phrase(head.status), id_);
  const bool has_content = head.status != 204;  // so it has no length either (RFC 9110, 8.6)
  if (has_content && !head.content_type.empty()) {
    text += fmt::format("Content-Type: {}\r\n", head.content_type);
  }
  for (const auto* headers : {&head.headers, &config_.headers}) {
    for (const auto& [name, value] : *headers) {
      text += fmt::format("{}: {}\r\n", name, value);
    }
  }
  if (whole && has_content) {
    text += fmt::format("Content-Length: {}\r\n", head.body.size());
  } else if (!whole && chunked_) {
    text += "Transfer-Encoding: chunked\r\n";
  }
  if (!keep_alive_) {
    text += "Connection: close\r\n";
  } else if (!chunked_) {  // HTTP/1.0 closes unless a header says otherwise
    text += "Connection: keep-alive\r\n";
  }
  text += "\r\n";
  unsent_ += text;
}

void Exchange::append_piece(std::string_view piece) {
  if (piece.empty() || head_only_ || gone_) {
    return;
  }
  if (chunked_) {
    fmt::format_to(std::back_inserter(unsent_), "{:x}\r\n", piece.size());
  }
  unsent_ += piece;
  unsent_ += chunked_ ? "\r\n" : "";
}

// Writes a piece of a stream directly if the socket accepts it: the connection need not wake up.
void Exchange::send_or_ring() {
  if (write_ && !gone_) {
    unsent_.erase(0, write_(unsent_));
  }
  if (!unsent_.empty() || gone_) {
    ring();
  }
}

void Exchange::ring() {
  wake_.cancel();
}

}  // namespace winnow::server
