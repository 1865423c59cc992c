#include "eval/facts.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <string_view>

namespace winnow::eval {
namespace {

using Words = std::string_view;

constexpr std::array kCities{Words("Lisbon"), Words("Oslo"),   Words("Vienna"), Words("Dublin"),
                             Words("Cairo"),  Words("Lima"),   Words("Quito"),  Words("Prague"),
                             Words("Warsaw"), Words("Athens"), Words("Madrid"), Words("Berlin"),
                             Words("Paris"),  Words("Rome"),   Words("London"), Words("Tokyo"),
                             Words("Seoul"),  Words("Boston"), Words("Geneva"), Words("Milan")};
constexpr std::array kNames{Words("Alice"), Words("Ben"),    Words("Clara"),  Words("David"),
                            Words("Emma"),  Words("Frank"),  Words("Grace"),  Words("Henry"),
                            Words("Irene"), Words("Jack"),   Words("Karen"),  Words("Leo"),
                            Words("Maria"), Words("Nathan"), Words("Olivia"), Words("Peter"),
                            Words("Rosa"),  Words("Tina"),   Words("Victor"), Words("Wendy")};
constexpr std::array kColours{Words("red"),    Words("blue"),  Words("green"),  Words("yellow"),
                              Words("black"),  Words("white"), Words("golden"), Words("purple"),
                              Words("orange"), Words("grey")};
constexpr std::array kThings{Words("key"),   Words("letter"), Words("book"), Words("map"),
                             Words("lamp"),  Words("coin"),   Words("ring"), Words("hat"),
                             Words("watch"), Words("flute"),  Words("box"),  Words("camera")};
constexpr std::array kPlaces{Words("kitchen"), Words("garden"), Words("library"), Words("cellar"),
                             Words("attic"),   Words("stable"), Words("office"),  Words("tower"),
                             Words("chapel"),  Words("museum"), Words("garage"),  Words("theatre")};
constexpr std::array kDays{Words("Monday"),   Words("Tuesday"), Words("Wednesday"),
                           Words("Thursday"), Words("Friday"),  Words("Saturday"),
                           Words("Sunday")};

template <std::size_t N>
Words pick(const std::array<Words, N>& words, Random& random) {
  return words[static_cast<std::size_t>(draw(random, 0, static_cast<int>(N)))];
}

Fact office_code(Random& random) {
  const Words city = pick(kCities, random);
  const std::string code = std::to_string(draw(random, 10000, 100000));
  return {fmt::format("The secret code of the {} office is {}.", city, code),
          fmt::format("What is the secret code of the {} office?", city),
          {code}};
}

Fact hidden_object(Random& random) {
  const Words name = pick(kNames, random);
  const std::string thing = fmt::format("{} {}", pick(kColours, random), pick(kThings, random));
  const std::string place(pick(kPlaces, random));
  return {fmt::format("{} keeps the {} in the {}.", name, thing, place),
          fmt::format("Where does {} keep the {}?", name, thing),
          {place}};
}

Fact train_time(Random& random) {
  const Words city = pick(kCities, random);
  const std::string time = fmt::format("{}:{:02}", draw(random, 1, 13), draw(random, 0, 60));
  return {fmt::format("The train to {} leaves at {} from platform {}.", city, time,
                      draw(random, 1, 20)),
          fmt::format("When does the train to {} leave?", city),
          {time}};
}

Fact meeting(Random& random) {
  const Words name = pick(kNames, random);
  const std::string day(pick(kDays, random));
  const std::string room = std::to_string(draw(random, 100, 1000));
  return {fmt::format("The meeting with {} is on {} in room {}.", name, day, room),
          fmt::format("When and where is the meeting with {}?", name),
          {day, room}};
}

Fact phone_number(Random& random) {
  const Words name = pick(kNames, random);
  const std::string number =
      fmt::format("{}-{}", draw(random, 100, 1000), draw(random, 1000, 10000));
  return {fmt::format("The phone number of {} is {}.", name, number),
          fmt::format("What is the phone number of {}?", name),
          {number}};
}

}  // namespace

int draw(Random& random, int low, int high) {
  return low + static_cast<int>(random.uniform() * (high - low));
}

Fact make_fact(int index, Random& random) {
  constexpr std::array<Fact (*)(Random&), kFactKinds> kKinds{office_code, hidden_object, train_time,
                                                             meeting, phone_number};
  return kKinds[static_cast<std::size_t>(index) % kKinds.size()](random);
}

bool holds_word(std::string_view text, std::string_view value) {
  const auto is_word = [&text](std::size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (std::size_t at = text.find(value); at != std::string_view::npos;
       at = text.find(value, at + 1)) {
    if ((at == 0 || !is_word(at - 1)) && !is_word(at + value.size())) {
      return true;
    }
  }
  return false;
}

}  // namespace winnow::eval
