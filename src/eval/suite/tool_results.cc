#include "eval/suite/tool_results.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "checkpoint/json_text.h"
#include "eval/facts.h"

namespace winnow::eval {
namespace {

using Words = std::string_view;

constexpr std::array kServices{Words("billing"), Words("search"),  Words("gateway"),
                               Words("mailer"),  Words("storage"), Words("metrics"),
                               Words("login"),   Words("cache")};
constexpr std::array kFiles{Words("main"),   Words("config"), Words("backup"), Words("index"),
                            Words("readme"), Words("access"), Words("schema"), Words("deploy")};
constexpr std::array kEndings{Words("py"), Words("yaml"), Words("log"), Words("tar"), Words("md")};
constexpr std::array kEvents{Words("request served"),  Words("connection closed"),
                             Words("cache refreshed"), Words("job finished"),
                             Words("retrying"),        Words("timed out"),
                             Words("file rotated"),    Words("health check passed")};

template <std::size_t N>
std::string pick_word(const std::array<Words, N>& words, Random& random) {
  return std::string(words[static_cast<std::size_t>(draw(random, 0, static_cast<int>(N)))]);
}

std::string host(Random& random) {
  return fmt::format("{}-{}", pick_word(kServices, random), draw(random, 1, 40));
}

std::string clock(Random& random) {
  return fmt::format("{:02}:{:02}:{:02}", draw(random, 0, 24), draw(random, 0, 60),
                     draw(random, 0, 60));
}

ToolStep listing(Random& random) {
  const std::string folder = fmt::format("/srv/{}", host(random));
  std::string result;
  for (int lines = draw(random, 4, 9); lines > 0; --lines) {
    result += fmt::format("-rw-r--r-- {:>8} 2026-{:02}-{:02} {}_{}.{}\n", draw(random, 100, 900000),
                          draw(random, 1, 13), draw(random, 1, 29), pick_word(kFiles, random),
                          draw(random, 1, 100), pick_word(kEndings, random));
  }
  return {"list_files", {{"path", folder}}, result};
}

ToolStep disk_usage(Random& random) {
  std::string result = "Filesystem  Size  Used  Use%  Mounted on\n";
  for (int lines = draw(random, 2, 5); lines > 0; --lines) {
    const int size = draw(random, 100, 999);
    const int used = draw(random, 10, size);
    result += fmt::format("/dev/sd{}{}   {}G  {}G  {}%  /mnt/{}\n",
                          static_cast<char>('a' + draw(random, 0, 6)), draw(random, 1, 9), size,
                          used, 100 * used / size, pick_word(kServices, random));
  }
  return {"run", {{"command", "df -h"}, {"host", host(random)}}, result};
}

ToolStep log_lines(Random& random) {
  const std::string service = pick_word(kServices, random);
  std::string result;
  for (int lines = draw(random, 4, 10); lines > 0; --lines) {
    result += fmt::format("{} {} [{}] {} in {} ms\n", clock(random), service,
                          draw(random, 0, 6) == 0 ? "WARN" : "INFO", pick_word(kEvents, random),
                          draw(random, 1, 900));
  }
  return {"run", {{"command", fmt::format("tail /var/log/{}.log", service)}}, result};
}

ToolStep document(Random& random) {
  Json result{{"service", host(random)},
              {"version", fmt::format("{}.{}.{}", draw(random, 0, 9), draw(random, 0, 30),
                                      draw(random, 0, 99))},
              {"replicas", draw(random, 1, 20)},
              {"port", draw(random, 1024, 60000)},
              {"healthy", draw(random, 0, 5) != 0}};
  result["limits"] = {{"memory_mib", 64 * draw(random, 1, 64)}, {"cpu", draw(random, 1, 16)}};
  return {"get_json",
          {{"url", fmt::format("http://{}/status", result.at("service").get<std::string>())}},
          json_text(result, 2)};
}

}  // namespace

ToolStep draw_tool_step(Random& random) {
  constexpr std::array kKinds{listing, disk_usage, log_lines, document};
  return kKinds[static_cast<std::size_t>(draw(random, 0, static_cast<int>(kKinds.size())))](random);
}

ToolStep note_of(const std::string& sentence, Random& random) {
  return {"read_note", {{"name", fmt::format("note-{}.txt", draw(random, 1, 1000))}}, sentence};
}

}  // namespace winnow::eval
