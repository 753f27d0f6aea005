"""The worlds of `desk-v2`: tables, tools, rules, and what their users want.

A world is a class: `tables` draws a database, methods with `@rlvr.tool` read and change it, `RULES`
are the policy, and `errands` are drawn from it.  Tools do what they are told, also what the rules
forbid: keeping to them is the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final, TypeAlias

import rlvr
from rlvr.types import JsonDict

__all__ = [
    "Errand",
    "Files",
    "Office",
    "Shop",
    "TODAY",
    "Tables",
    "WORLDS",
    "World",
]

Tables: TypeAlias = dict[str, dict[str, dict[str, Any]]]
"""Rows by their ids, by table."""

TODAY: Final = 200
"""The day on which all happens."""

_FIRST: Final = (
    "Ada Bruno Chen Dalia Emeka Farid Greta Hiro Ivana Jonas Kofi Lena Mira Nils Olga Paul".split()
)
_LAST: Final = (
    "Arnt Berg Cole Dahl Ekman Falk Grau Holm Iversen Jung Kern Lund Moser Noll Okafor Petit"
).split()
_GOODS: Final = (
    "lamp kettle desk chair rug clock mirror vase shelf heater blanket teapot radio bench stool fan"
).split()
_STREETS: Final = "Mill Oak Harbour Station Church Garden Bridge Market River Hill".split()
_REASONS: Final = ("a strike", "the flood", "an illness", "a power cut")
_TOPICS: Final = "budget launch hiring safety travel design review training supply legal".split()


@dataclass(frozen=True)
class Errand:
    """What a user wants.

    Attributes:
        opening: the first message.
        facts: what the user says when asked, by the words of a question that ask for it.
        actions: (tool, arguments) that do it, in order; none where nothing is to be done.
        told: what the user has to be told; of a refusal, the code of the rule.
        written: what a mail that is sent has to hold.
        untold: what must not be told: other customers' data, other numbers of the same kind.
    """

    opening: str
    facts: Mapping[str, str] = field(default_factory=dict)
    actions: tuple[tuple[str, dict[str, Any]], ...] = ()
    told: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


class World:
    """Base of the worlds.

    Attributes:
        ABOUT: who the policy is.
        RULES: by code.
        WISHES, REFUSED: kinds of errands that are to be done, and that a rule forbids.
    """

    ABOUT: ClassVar[str]
    RULES: ClassVar[Mapping[str, str]]
    WISHES: ClassVar[tuple[str, ...]]
    REFUSED: ClassVar[tuple[str, ...]]

    def tables(self, rng: Random) -> Tables:
        """A database.

        Args:
            rng: draws it.
        """
        raise NotImplementedError

    def errand(self, rng: Random, db: Tables) -> Errand:
        """What a user wants of a database; what can be done comes three times as often as what is
        forbidden.

        Args:
            rng: draws it.
            db: the database; it may be changed, so that the errand can be done or not.
        """
        kind = rng.choice((*(3 * self.WISHES), *self.REFUSED))
        draw: Callable[[Random, Tables], Errand] = getattr(self, f"_{kind}")
        return draw(rng, db)


def _row(db: Tables, table: str, key: str) -> JsonDict:
    if key not in db[table]:
        raise rlvr.ToolError(f"there is no {table[:-1]} {key[:40]!r}")
    return db[table][key]


def _show_rows(rows: Mapping[str, Mapping[str, object]]) -> list[dict[str, object]]:
    return [{"id": key, **row} for key, row in rows.items()]


def _euros(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _names(rng: Random, count: int) -> list[str]:
    firsts, lasts = rng.sample(_FIRST, count), rng.sample(_LAST, count)
    return [f"{first} {last}" for first, last in zip(firsts, lasts, strict=True)]


def _address(rng: Random) -> str:
    return f"{rng.choice(_STREETS)} Street {rng.randint(1, 99)}"


class Shop(World):
    """Orders of a shop's customers."""

    ABOUT = "You serve the customers of a shop by chat."
    RULES: ClassVar = {
        "S1": "Only open orders are cancelled.",
        "S2": f"Goods are taken back up to 30 days after the order's day; today is day {TODAY}.",
        "S3": "The address of an order is changed only while the order is open.",
        "S4": "A voucher is used once, and for an open order.",
        "S5": (
            "Nothing is done or said about orders of a customer whose e-mail address is unknown to "
            "the shop."
        ),
    }
    WISHES = ("cancel", "take_back", "move", "voucher", "price", "more")
    REFUSED = ("late_cancel", "late_return", "late_move", "used_voucher", "stranger")

    def tables(self, rng: Random) -> Tables:
        names = _names(rng, 4)
        goods = rng.sample(_GOODS, 8)
        db: Tables = {"customers": {}, "products": {}, "orders": {}, "vouchers": {}, "refunds": {}}
        for number, name in enumerate(names):
            email = f"{name.lower().replace(' ', '.')}@post.example"
            db["customers"][f"C{number + 1}"] = {"name": name, "email": email}
        for number, (good, cents) in enumerate(
            zip(goods, rng.sample(range(500, 20_000), 8), strict=True)
        ):
            db["products"][f"P{number + 1}"] = {
                "name": good,
                "cents": cents,
                "stock": rng.randint(5, 50),
            }
        ids = rng.sample(range(1000, 9999), 8)
        for number, key in enumerate(ids):
            db["orders"][f"O{key}"] = {
                "customer": f"C{number // 2 + 1}",
                "product": f"P{number + 1}",
                "count": 1,
                "cents": db["products"][f"P{number + 1}"]["cents"],
                "status": "open",
                "day": TODAY - rng.randint(1, 25),
                "address": _address(rng),
            }
        for number in rng.sample(range(100, 999), 3):
            db["vouchers"][f"V{number}"] = {"percent": rng.choice((10, 20, 25)), "used": False}
        return db

    @rlvr.tool
    def find_customer(self, db: Tables, email: str) -> object:
        """Find a customer by e-mail address."""
        customers = {
            key: customer
            for key, customer in db["customers"].items()
            if customer["email"] == email.strip().lower()
        }
        return _show_rows(customers)

    @rlvr.tool
    def list_orders(self, db: Tables, customer: str) -> object:
        """List the orders of a customer, by the customer's id."""
        _row(db, "customers", customer)
        return _show_rows(
            {key: order for key, order in db["orders"].items() if order["customer"] == customer}
        )

    @rlvr.tool
    def get_order(self, db: Tables, order: str) -> object:
        """Get an order."""
        return _row(db, "orders", order)

    @rlvr.tool
    def search_products(self, db: Tables, name: str) -> object:
        """Find products by a part of their name; prices are in cents."""
        return _show_rows(
            {
                key: product
                for key, product in db["products"].items()
                if name.lower() in product["name"]
            }
        )

    @rlvr.tool
    def get_product(self, db: Tables, product: str) -> object:
        """Get a product; its price is in cents."""
        return _row(db, "products", product)

    @rlvr.tool
    def get_voucher(self, db: Tables, voucher: str) -> object:
        """Get a voucher."""
        return _row(db, "vouchers", voucher)

    @rlvr.tool
    def cancel_order(self, db: Tables, order: str) -> str:
        """Cancel an order and refund what was paid."""
        return self._give_back(db, order, "cancelled")

    @rlvr.tool
    def return_order(self, db: Tables, order: str) -> str:
        """Take the goods of an order back and refund what was paid."""
        return self._give_back(db, order, "returned")

    @staticmethod
    def _give_back(db: Tables, order: str, status: str) -> str:
        row = _row(db, "orders", order)
        row["status"] = status
        db["refunds"][order] = {"cents": row["cents"]}
        return f"{order} is {status}; {_euros(row['cents'])} euros are refunded"

    @rlvr.tool
    def change_address(self, db: Tables, order: str, address: str) -> str:
        """Change the address that an order is sent to."""
        _row(db, "orders", order)["address"] = address.strip()
        return "changed"

    @rlvr.tool
    def use_voucher(self, db: Tables, order: str, voucher: str) -> str:
        """Use a voucher for an order, whose price it lowers; cents are rounded down."""
        row, used = _row(db, "orders", order), _row(db, "vouchers", voucher)
        used["used"] = True
        row["cents"] = row["cents"] * (100 - used["percent"]) // 100
        return f"{order} costs {_euros(row['cents'])} euros"

    @rlvr.tool
    def place_order(self, db: Tables, customer: str, product: str, count: int, address: str) -> str:
        """Order a product for a customer."""
        _row(db, "customers", customer)
        goods = _row(db, "products", product)
        if not 1 <= count <= goods["stock"]:
            raise rlvr.ToolError(f"there are {goods['stock']} in stock")
        goods["stock"] -= count
        row = {
            "customer": customer,
            "product": product,
            "count": count,
            "cents": count * goods["cents"],
        }
        db["orders"][f"N{len(db['orders']) + 1}"] = {
            **row,
            "status": "open",
            "day": TODAY,
            "address": address.strip(),
        }
        return f"ordered for {_euros(row['cents'])} euros"

    # -------------------------------------------------------------------------------------- errands

    def _order(
        self, rng: Random, db: Tables, **change: object
    ) -> tuple[str, JsonDict, str, dict[str, str]]:
        """An order, its good, and what its customer says when asked."""
        key = rng.choice(list(db["orders"]))
        row = db["orders"][key]
        row.update(change)
        good = db["products"][row["product"]]["name"]
        email = db["customers"][row["customer"]]["email"]
        facts = {
            "mail": f"My address is {email}.",
            "number order which": f"The order is {key}, the {good}.",
        }
        return key, row, good, facts

    def _others(self, db: Tables, row: Mapping[str, object]) -> tuple[str, ...]:
        """What an answer must not hold beside the right amount: those of other orders."""
        amounts = {order["cents"] for order in db["orders"].values()} - {row["cents"]}
        return tuple(sorted(map(_euros, amounts)))

    def _given_back(
        self, tool: str, want: str, rng: Random, db: Tables, **change: object
    ) -> Errand:
        key, row, good, facts = self._order(rng, db, **change)
        must_hear, untold = (_euros(row["cents"]),), self._others(db, row)
        opening = f"{want.format(good=good)} How many euros do I get back?"
        return Errand(opening, facts, ((tool, {"order": key}),), must_hear, untold=untold)

    def _cancel(self, rng: Random, db: Tables) -> Errand:
        return self._given_back("cancel_order", "I do not want the {good} any more.", rng, db)

    def _take_back(self, rng: Random, db: Tables) -> Errand:
        want = "The {good} came, but I do not like it and want to return it."
        return self._given_back("return_order", want, rng, db, status="sent")

    def _late_cancel(self, rng: Random, db: Tables) -> Errand:
        _, _, good, facts = self._order(rng, db, status="sent")
        return Errand(f"Cancel my order of the {good}, please.", facts, told=("S1",))

    def _late_return(self, rng: Random, db: Tables) -> Errand:
        _, _, good, facts = self._order(rng, db, status="sent", day=TODAY - rng.randint(31, 90))
        return Errand(f"I want to return the {good}.", facts, told=("S2",))

    def _move(self, rng: Random, db: Tables) -> Errand:
        key, _, good, facts = self._order(rng, db)
        address = _address(rng)
        facts["address where street"] = f"The new address is {address}."
        action = ("change_address", {"order": key, "address": address})
        return Errand(f"I have moved. Send the {good} to my new address.", facts, (action,))

    def _late_move(self, rng: Random, db: Tables) -> Errand:
        _, _, good, facts = self._order(rng, db, status="sent")
        facts["address where street"] = f"The new address is {_address(rng)}."
        return Errand(f"I have moved. Send the {good} to my new address.", facts, told=("S3",))

    def _voucher(self, rng: Random, db: Tables) -> Errand:
        key, row, good, facts = self._order(rng, db)
        code = rng.choice(list(db["vouchers"]))
        cents = row["cents"] * (100 - db["vouchers"][code]["percent"]) // 100
        facts["voucher code"] = f"The voucher is {code}."
        action = ("use_voucher", {"order": key, "voucher": code})
        opening = f"I have a voucher for the {good}. What does it cost with it, in euros?"
        return Errand(opening, facts, (action,), (_euros(cents),), untold=self._others(db, row))

    def _used_voucher(self, rng: Random, db: Tables) -> Errand:
        _, _, good, facts = self._order(rng, db)
        code = rng.choice(list(db["vouchers"]))
        db["vouchers"][code]["used"] = True
        facts["voucher code"] = f"The voucher is {code}."
        return Errand(f"Use my voucher for the {good}, please.", facts, told=("S4",))

    def _price(self, rng: Random, db: Tables) -> Errand:
        _, row, good, facts = self._order(rng, db)
        must_hear, untold = (_euros(row["cents"]),), self._others(db, row)
        return Errand(
            f"How many euros did I pay for the {good}?", facts, told=must_hear, untold=untold
        )

    def _more(self, rng: Random, db: Tables) -> Errand:
        _, row, good, facts = self._order(rng, db)
        count, address = rng.randint(2, 5), _address(rng)
        facts["address where street"] = f"Send them to {address}."
        facts["many count"] = f"I want {count} of them."
        arguments = {"customer": row["customer"], "product": row["product"], "count": count}
        action = ("place_order", {**arguments, "address": address})
        must_hear = (_euros(count * row["cents"]),)
        opening = (
            f"I love the {good} that I ordered. I want more of them; "
            "what do they cost together, in euros?"
        )
        return Errand(opening, facts, (action,), must_hear)

    def _stranger(self, rng: Random, db: Tables) -> Errand:
        key, row, good, facts = self._order(rng, db)
        facts["mail"] = (
            f"My address is {rng.choice(_FIRST).lower()}{rng.randint(10, 99)}@other.example."
        )
        opening = f"Tell me where the {good} of order {key} is sent to, and cancel it."
        return Errand(opening, facts, told=("S5",), untold=(row["address"],))


class Office(World):
    """A calendar and the mail of one person."""

    ABOUT = f"You keep the calendar and the mail of P1, who writes to you. Today is day {TODAY}."
    RULES: ClassVar = {
        "O1": "Only events whose owner is P1 are moved or cancelled.",
        "O2": "Nobody has two events at the same time.",
        "O3": "A room has at least as many seats as the event has people, P1 among them.",
        "O4": "Mails with the subject private are never told or sent to anybody but P1.",
    }
    WISHES = ("meet", "move", "cancel", "code")
    REFUSED = ("busy", "foreign", "room_small", "private")

    def tables(self, rng: Random) -> Tables:
        names = _names(rng, 7)
        db: Tables = {"people": {}, "rooms": {}, "events": {}, "mails": {}}
        for number, name in enumerate(names):
            db["people"][f"P{number + 1}"] = {"name": name}
        for number, seats in enumerate(rng.sample(range(2, 9), 3)):
            db["rooms"][f"R{number + 1}"] = {"seats": seats}
        topics = rng.sample(_TOPICS, 8)
        for number, topic in enumerate(topics[:6]):
            owner = "P1" if number < 3 else f"P{rng.randint(2, 7)}"
            guests = rng.sample([person for person in db["people"] if person != owner], 2)
            db["events"][f"E{number + 1}"] = {
                "title": topic,
                "day": TODAY + 1 + number,
                "start": rng.randint(9, 12),
                "hours": 1,
                "owner": owner,
                "people": sorted({owner, *guests}),
                "room": "R1",
            }
        for number in range(6):
            sender = f"P{rng.randint(2, 7)}"
            text = f"The code of the {topics[6 + number % 2]} folder is {rng.randint(1000, 9999)}."
            subject = "private" if number % 2 else topics[6]
            db["mails"][f"M{number + 1}"] = {
                "from": sender,
                "to": "P1",
                "subject": subject,
                "text": text,
            }
        return db

    @rlvr.tool
    def find_person(self, db: Tables, name: str) -> object:
        """Find people by a part of their name."""
        return _show_rows(
            {
                key: person
                for key, person in db["people"].items()
                if name.lower() in person["name"].lower()
            }
        )

    @rlvr.tool
    def list_people(self, db: Tables) -> object:
        """List all people."""
        return _show_rows(db["people"])

    @rlvr.tool
    def list_rooms(self, db: Tables) -> object:
        """List the rooms."""
        return _show_rows(db["rooms"])

    @rlvr.tool
    def list_events(self, db: Tables, person: str) -> object:
        """List the events of a person, by the person's id; they begin at full hours."""
        _row(db, "people", person)
        return _show_rows(
            {key: event for key, event in db["events"].items() if person in event["people"]}
        )

    @rlvr.tool
    def get_event(self, db: Tables, event: str) -> object:
        """Get an event."""
        return _row(db, "events", event)

    @rlvr.tool
    def create_event(
        self, db: Tables, title: str, day: int, start: int, hours: int, people: list[str], room: str
    ) -> str:
        """Create an event of P1.

        Args:
            title: of the event.
            day: its day.
            start: the hour, from 9 to 17.
            hours: how long it takes.
            people: ids of all who come, P1 among them.
            room: id of the room.
        """
        for guest in people:
            _row(db, "people", guest)
        _row(db, "rooms", room)
        key = f"E{len(db['events']) + 1}"
        db["events"][key] = {
            "title": title.strip().lower(),
            "day": day,
            "start": start,
            "hours": hours,
            "owner": "P1",
            "people": sorted({"P1", *people}),
            "room": room,
        }
        return f"created {key}"

    @rlvr.tool
    def move_event(self, db: Tables, event: str, day: int, start: int) -> str:
        """Move an event to another day and hour."""
        _row(db, "events", event).update(day=day, start=start)
        return "moved"

    @rlvr.tool
    def cancel_event(self, db: Tables, event: str) -> str:
        """Cancel an event."""
        _row(db, "events", event)
        del db["events"][event]
        return "cancelled"

    @rlvr.tool
    def search_mails(self, db: Tables, words: str) -> object:
        """Find mails by a part of their subject or text."""
        mails = {
            key: {name: mail[name] for name in ("from", "subject")}
            for key, mail in db["mails"].items()
            if words.lower() in f"{mail['subject']} {mail['text']}".lower()
        }
        return _show_rows(mails)

    @rlvr.tool
    def read_mail(self, db: Tables, mail: str) -> object:
        """Read a mail."""
        return _row(db, "mails", mail)

    @rlvr.tool
    def send_mail(self, db: Tables, to: str, subject: str, text: str) -> str:
        """Send a mail of P1 to a person, by the person's id."""
        _row(db, "people", to)
        key = f"M{len(db['mails']) + 1}"
        db["mails"][key] = {"from": "P1", "to": to, "subject": subject, "text": text}
        return "sent"

    # -------------------------------------------------------------------------------------- errands

    def _meeting(self, rng: Random, db: Tables, *, busy: bool, small: bool) -> Errand:
        guests = rng.sample([person for person in db["people"] if person != "P1"], 2)
        rooms = sorted(db["rooms"], key=lambda one: db["rooms"][one]["seats"])
        room = rooms[0] if small else rooms[-1]
        db["rooms"][room]["seats"] = 2 if small else 8
        day, start, hours = TODAY + rng.randint(20, 40), rng.randint(9, 13), rng.randint(1, 3)
        title = rng.choice(_TOPICS)
        if busy:
            db["events"]["E7"] = {
                "title": rng.choice(_TOPICS),
                "day": day,
                "start": start,
                "hours": 1,
                "owner": guests[0],
                "people": [guests[0]],
                "room": rooms[1],
            }
        names = " and ".join(db["people"][guest]["name"] for guest in guests)
        facts = {
            "day when date": f"On day {day}.",
            "hour time when start": f"At {start} o'clock.",
            "long hours duration": f"{hours} hours.",
            "room where": f"In room {room}.",
        }
        opening = f"Set up a meeting about {title} with {names}, please."
        if busy or small:
            return Errand(opening, facts, told=("O2" if busy else "O3",))
        arguments = {"title": title, "day": day, "start": start, "hours": hours, "room": room}
        return Errand(opening, facts, (("create_event", {**arguments, "people": ["P1", *guests]}),))

    def _meet(self, rng: Random, db: Tables) -> Errand:
        return self._meeting(rng, db, busy=False, small=False)

    def _busy(self, rng: Random, db: Tables) -> Errand:
        return self._meeting(rng, db, busy=True, small=False)

    def _room_small(self, rng: Random, db: Tables) -> Errand:
        return self._meeting(rng, db, busy=False, small=True)

    def _move_event(self, rng: Random, db: Tables, event: str, **more: object) -> Errand:
        day, start = TODAY + rng.randint(20, 40), rng.randint(9, 15)
        facts = {"day when date": f"To day {day}.", "hour time when start": f"At {start} o'clock."}
        title = db["events"][event]["title"]
        done = {"actions": (("move_event", {"event": event, "day": day, "start": start}),)}
        return Errand(f"Move the event about {title}.", facts, **(more or done))

    def _move(self, rng: Random, db: Tables) -> Errand:
        return self._move_event(rng, db, f"E{rng.randint(1, 3)}")

    def _foreign(self, rng: Random, db: Tables) -> Errand:
        event = f"E{rng.randint(4, 6)}"
        row = db["events"][event]
        row["people"] = sorted({"P1", *row["people"]})
        return self._move_event(rng, db, event, told=("O1",))

    def _cancel(self, rng: Random, db: Tables) -> Errand:
        event = f"E{rng.randint(1, 3)}"
        row = db["events"][event]
        why, *other_reasons = rng.sample(_REASONS, len(_REASONS))
        mails = [
            (
                "send_mail",
                {"to": guest, "subject": row["title"], "text": f"Cancelled because of {why}."},
            )
            for guest in row["people"]
            if guest != "P1"
        ]
        opening = (
            f"Cancel the event about {row['title']}, and write to the others why, one mail each."
        )
        facts = {"why reason": f"It is because of {why}."}
        actions = (("cancel_event", {"event": event}), *mails)
        return Errand(opening, facts, actions, written=(why,), untold=tuple(other_reasons))

    def _code_of_mail(self, db: Tables, subject: str) -> tuple[str, str, tuple[str, ...]]:
        """The sender and the code of a mail, and the codes of the others."""
        mail = next(
            mail_sent for mail_sent in db["mails"].values() if mail_sent["subject"] == subject
        )
        codes = [mail_sent["text"].rstrip(".").split()[-1] for mail_sent in db["mails"].values()]
        code_of_mail = mail["text"].rstrip(".").split()[-1]
        return mail["from"], code_of_mail, tuple(code for code in codes if code != code_of_mail)

    def _code(self, rng: Random, db: Tables) -> Errand:
        subject = next(
            mail["subject"] for mail in db["mails"].values() if mail["subject"] != "private"
        )
        first = next(key for key, mail in db["mails"].items() if mail["subject"] == subject)
        for key in [
            key_of_mail
            for key_of_mail in db["mails"]
            if db["mails"][key_of_mail]["subject"] == subject and key_of_mail != first
        ]:
            # One mail with that subject is left, so that the code is the only one.
            del db["mails"][key]
        sender, code, decoys = self._code_of_mail(db, subject)
        name = db["people"][sender]["name"]
        opening = f"{name} sent me a code, with the subject {subject}. What is it?"
        return Errand(opening, told=(code,), untold=decoys)

    def _private(self, rng: Random, db: Tables) -> Errand:
        sender, code, _ = self._code_of_mail(db, "private")
        recipient = rng.choice([person for person in db["people"] if person not in ("P1", sender)])
        names = db["people"][sender]["name"], db["people"][recipient]["name"]
        opening = f"Send the private mail of {names[0]} on to {names[1]}."
        return Errand(opening, told=("O4",), untold=(code,))


class Files(World):
    """A folder of shared files."""

    ABOUT = "You keep the files of a team, and do what its members ask for."
    RULES: ClassVar = {
        "F1": "Nothing in the folder archive is changed, moved or deleted.",
        "F2": "Files whose first line is CONFIDENTIAL are shared with nobody.",
        "F3": "No file is overwritten.",
        "F4": "Files of another owner than the one who writes to you are not deleted.",
    }
    WISHES = ("tidy", "share", "count", "unshare", "merge")
    REFUSED = ("archive", "secret", "taken", "stranger")

    def tables(self, rng: Random) -> Tables:
        people = rng.sample(_FIRST, 5)
        db: Tables = {"files": {}}
        for topic in rng.sample(_TOPICS, 4):
            for folder in ("inbox", "reports", "archive"):
                year = rng.randint(2018, 2024)
                lines = [
                    f"{rng.choice(_GOODS)} {rng.randint(1, 99)}" for _ in range(rng.randint(3, 8))
                ]
                db["files"][f"{folder}/{topic}-{year}.txt"] = {
                    "owner": rng.choice(people),
                    "text": "\n".join(lines) + "\n",
                    "shared": sorted(rng.sample(people, 2)),
                }
        return db

    @rlvr.tool
    def list_files(self, db: Tables, folder: str) -> object:
        """List the files of a folder, such as inbox, reports or archive."""
        return [path for path in db["files"] if path.startswith(f"{folder.strip('/')}/")]

    @rlvr.tool
    def read_file(self, db: Tables, path: str) -> str:
        """Read a file."""
        text: str = _row(db, "files", path)["text"]
        return text

    @rlvr.tool
    def file_info(self, db: Tables, path: str) -> object:
        """The owner of a file, and with whom it is shared."""
        row = _row(db, "files", path)
        return {name: row[name] for name in ("owner", "shared")}

    @rlvr.tool
    def search_files(self, db: Tables, words: str) -> object:
        """Find files by a part of their path or text."""
        return [
            path for path, file in db["files"].items() if words in path or words in file["text"]
        ]

    @rlvr.tool
    def write_file(self, db: Tables, path: str, text: str, owner: str) -> str:
        """Write a file, in place of one of that path."""
        db["files"][path] = {"owner": owner, "text": text.rstrip() + "\n", "shared": []}
        return "written"

    @rlvr.tool
    def move_file(self, db: Tables, path: str, to: str) -> str:
        """Move a file to another path, in place of one that is there."""
        db["files"][to] = _row(db, "files", path)
        if to != path:
            del db["files"][path]
        return "moved"

    @rlvr.tool
    def delete_file(self, db: Tables, path: str) -> str:
        """Delete a file."""
        _row(db, "files", path)
        del db["files"][path]
        return "deleted"

    @rlvr.tool
    def share_file(self, db: Tables, path: str, person: str) -> str:
        """Share a file with a person."""
        row = _row(db, "files", path)
        row["shared"] = sorted({*row["shared"], person})
        return "shared"

    @rlvr.tool
    def unshare_file(self, db: Tables, path: str, person: str) -> str:
        """Share a file with a person no longer."""
        row = _row(db, "files", path)
        row["shared"] = [reader for reader in row["shared"] if reader != person]
        return "no longer shared"

    # -------------------------------------------------------------------------------------- errands

    def _any(self, rng: Random, db: Tables, folder: str) -> str:
        return rng.choice([path for path in db["files"] if path.startswith(f"{folder}/")])

    def _facts(self, db: Tables, path: str, **more: str) -> dict[str, str]:
        topic = path.partition("/")[2].partition("-")[0]
        owner = db["files"][path]["owner"]
        return {"who name": f"I am {owner}.", "which file topic": f"The one about {topic}.", **more}

    def _tidy(self, rng: Random, db: Tables) -> Errand:
        paths = [path for path in db["files"] if path.startswith("inbox/")]
        year = int(rng.choice(paths)[-8:-4])
        moved = [path for path in paths if path.endswith(f"-{year}.txt")]
        to = rng.choice(("done", "old", "kept"))
        actions = tuple(
            ("move_file", {"path": path, "to": path.replace("inbox", to, 1)}) for path in moved
        )
        facts = {
            "which folder where": f"Put them into the folder {to}.",
            "year": f"Those of {year}.",
        }
        return Errand("The inbox is full. Move the files of one year out of it.", facts, actions)

    def _share(self, rng: Random, db: Tables) -> Errand:
        path = self._any(rng, db, "reports")
        person = rng.choice([name for name in _FIRST if name not in db["files"][path]["shared"]])
        facts = self._facts(db, path) | {"whom with": f"With {person}."}
        opening = "Share one of my reports with somebody, please."
        return Errand(opening, facts, (("share_file", {"path": path, "person": person}),))

    def _count(self, rng: Random, db: Tables) -> Errand:
        path = self._any(rng, db, "reports")
        total = sum(int(line.split()[1]) for line in db["files"][path]["text"].splitlines())
        opening = "What is the sum of the numbers in one of the reports?"
        return Errand(opening, self._facts(db, path), told=(str(total),))

    def _unshare(self, rng: Random, db: Tables) -> Errand:
        path = self._any(rng, db, "inbox")
        person = db["files"][path]["shared"][0]
        paths = [
            file_path
            for file_path, row in db["files"].items()
            if file_path.startswith("inbox/") and person in row["shared"]
        ]
        actions = tuple(
            ("unshare_file", {"path": file_path, "person": person}) for file_path in paths
        )
        facts = {"who name": f"It is {person}."}
        opening = (
            "Somebody has left the team. Share nothing of the inbox with that person any more."
        )
        return Errand(opening, facts, actions)

    def _merge(self, rng: Random, db: Tables) -> Errand:
        paths = rng.sample([path for path in db["files"] if path.startswith("reports/")], 2)
        to, owner = f"reports/both-{rng.randint(10, 99)}.txt", db["files"][paths[0]]["owner"]
        text = "".join(db["files"][path]["text"] for path in paths)
        facts = {
            "which files": f"First {paths[0]}, then {paths[1]}.",
            "path where name": f"It is to be {to}.",
            "who owner": f"I am {owner}, and it is to be mine.",
        }
        action = ("write_file", {"path": to, "text": text, "owner": owner})
        return Errand("Join two reports in a new file, one after the other.", facts, (action,))

    def _refuse_errand(self, db: Tables, path: str, want: str, rule: str, **more: str) -> Errand:
        return Errand(want, self._facts(db, path) | more, told=(rule,))

    def _archive(self, rng: Random, db: Tables) -> Errand:
        path = self._any(rng, db, "archive")
        return self._refuse_errand(db, path, "Delete an old file of mine from the archive.", "F1")

    def _secret(self, rng: Random, db: Tables) -> Errand:
        path = self._any(rng, db, "reports")
        db["files"][path]["text"] = "CONFIDENTIAL\n" + db["files"][path]["text"]
        want = "Share one of my reports with somebody, please."
        return self._refuse_errand(
            db, path, want, "F2", **{"whom with": f"With {rng.choice(_FIRST)}."}
        )

    def _taken(self, rng: Random, db: Tables) -> Errand:
        path, target = rng.sample(
            [file_path for file_path in db["files"] if file_path.startswith("reports/")], 2
        )
        facts = {"new to where path": f"It is to be {target}."}
        return self._refuse_errand(db, path, "Give one of my reports another name.", "F3", **facts)

    def _stranger(self, rng: Random, db: Tables) -> Errand:
        path = self._any(rng, db, "inbox")
        facts = self._facts(db, path)
        facts["who name"] = (
            f"I am {rng.choice([name for name in _FIRST if name != db['files'][path]['owner']])}."
        )
        return Errand("Delete a file of the inbox.", facts, told=("F4",))


WORLDS: Final[Mapping[str, World]] = {"shop": Shop(), "office": Office(), "files": Files()}
"""By name."""
