#include "answers/text.h"

namespace winnow::answers {

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  std::string result;
  std::size_t done = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, done)) {
    result.append(text, done, at - done).append(by);
    done = at + what.size();
  }
  text = result.append(text, done);
}

}  // namespace winnow::answers
