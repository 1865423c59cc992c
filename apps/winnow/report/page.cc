#include "apps/winnow/report/page.h"

#include "checkpoint/atomic_file.h"
#include "checkpoint/replaceable_file.h"

namespace winnow::cli {

void require_page(const std::filesystem::path& path) {
  require_replaceable(path, text_that_begins("a page of winnow", kPageBegins));
}

void write_page(const std::filesystem::path& path, std::string_view rest) {
  AtomicFile file(path);
  file.write(kPageBegins);
  file.write(rest);
  file.commit();
}

}  // namespace winnow::cli
