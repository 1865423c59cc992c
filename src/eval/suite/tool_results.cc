#include "eval/suite/tool_results.h"

#include <fmt/format.h>

#include <array>
#include <initializer_list>
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

// Hosts of steps that no later call needs have the lower numbers, services of errands the others.
constexpr int kFirstOfErrands = 100;

std::string host(Random& random) {
  return fmt::format("{}-{}", pick_word(kServices, random), draw(random, 1, kFirstOfErrands));
}

std::string service_of_errand(Random& random) {
  return fmt::format("{}-{}", pick_word(kServices, random), draw(random, kFirstOfErrands, 1000));
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

Errand backup(Random& random) {
  const std::string service = service_of_errand(random);
  const std::string id = std::to_string(draw(random, 100000, 1000000));
  const Json job{{"service", service}, {"job_id", id}};
  Json started = job;
  started["state"] = "running";
  const Json done{{"state", "done"}, {"seconds", draw(random, 1, 900)}};
  return {.subject = service,
          .step = {"start_backup", {{"service", service}}, json_text(started)},
          .needs = {"job_status", job, json_text(done)},
          .request = fmt::format("Look up the state of the backup job of {}.", service),
          .values = {id}};
}

Errand release(Random& random) {
  const std::string service = service_of_errand(random);
  const std::string name = fmt::format("2026{:02}{:02}-{}", draw(random, 1, 13),
                                       draw(random, 1, 29), draw(random, 1000, 10000));
  const Json place{{"service", service}, {"path", fmt::format("/srv/releases/{}", name)}};
  Json deployed = place;
  deployed["files"] = draw(random, 1, 900);
  return {.subject = service,
          .step = {"deploy", {{"service", service}}, json_text(deployed)},
          .needs = {"roll_back", place, json_text(Json{{"ok", true}})},
          .request = fmt::format("Roll back the release of {} that was deployed.", service),
          .values = {name}};
}

Errand debugger(Random& random) {
  const std::string service = service_of_errand(random);
  const int port = draw(random, 10000, 60000);
  const Json place{{"service", service}, {"port", port}};
  Json opened = place;
  opened["expires"] = clock(random);
  return {.subject = service,
          .step = {"open_debugger", {{"service", service}}, json_text(opened)},
          .needs = {"attach", place, json_text(Json{{"ok", true}})},
          .request = fmt::format("Attach to the debugger of {}.", service),
          .values = {std::to_string(port)}};
}

Json tool(const char* name, const char* what, std::initializer_list<const char*> parameters) {
  Json types = Json::object();
  for (const char* const parameter : parameters) {
    types[parameter] = std::string_view(parameter) == "port" ? "integer" : "string";
  }
  return {{"name", name}, {"description", what}, {"parameters", types}};
}

}  // namespace

std::string call_text(const ToolStep& step) {
  return json_text(Json{{"tool", step.tool}, {"arguments", step.arguments}});
}

std::string agent_instructions() {
  const Json tools{tool("list_files", "Lists a folder.", {"path"}),
                   tool("run", "Runs a command.", {"command", "host"}),
                   tool("get_json", "Reads a URL.", {"url"}),
                   tool("read_note", "Reads a note.", {"name"}),
                   tool("start_backup", "Starts a backup job.", {"service"}),
                   tool("job_status", "The state of a job.", {"service", "job_id"}),
                   tool("deploy", "Deploys a release.", {"service"}),
                   tool("roll_back", "Takes a release back.", {"service", "path"}),
                   tool("open_debugger", "Opens a port for a debugger.", {"service"}),
                   tool("attach", "Attaches to a debugger.", {"service", "port"})};
  std::string text =
      "You look after servers. Call one tool at a time, as JSON; answer questions in words. Tools:";
  for (const Json& each : tools) {
    text += "\n" + json_text(each);
  }
  return text;
}

ToolStep draw_tool_step(Random& random) {
  constexpr std::array kKinds{listing, disk_usage, log_lines, document};
  return kKinds[static_cast<std::size_t>(draw(random, 0, static_cast<int>(kKinds.size())))](random);
}

Errand make_call(int index, Random& random) {
  constexpr std::array<Errand (*)(Random&), kCallKinds> kKinds{backup, release, debugger};
  Errand errand = kKinds[static_cast<std::size_t>(index) % kKinds.size()](random);
  const std::string call = call_text(errand.needs);
  errand.opening = call.substr(0, call.rfind(errand.values.front()));
  return errand;
}

Errand make_note(int index, Random& random) {
  const Fact fact = make_fact(index, random);
  const std::string name = fmt::format("note-{}.txt", draw(random, 1, 1000));
  return {.subject = fmt::format("note of kind {}", index % kFactKinds),
          .step = {"read_note", {{"name", name}}, fact.sentence},
          .request = fact.question,
          .values = fact.values};
}

}  // namespace winnow::eval
