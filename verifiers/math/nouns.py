"""Plain words that may follow a number without changing it: `12 green bottles` is 12.

Only words that can mean nothing but what is counted, how it looks or that it is all of it.  A word
that could scale the number (`pair`, `score`, `quarter`), turn it round or limit it is missing on
purpose: it is then no unit, and the answer equals only a reference with the same words.
"""

from __future__ import annotations

__all__ = ["ADJECTIVES", "NOUNS"]

# fmt: off
NOUNS = frozenset("""
acorn act actor adult airplane album alligator animal answer ant antelope apartment app apple
application appointment apricot arc arm arrangement arrival arrow article artist athlete atom
attempt avocado axe baby bacterium bag bagel bakery ball balloon ballot banana band bar barn barrel
basket basketball bat batch bathroom battery beach bead bean bear beaver bed bedroom bee beer bell
belt bench berry bicycle bike bill billboard bird biscuit block blouse board boat bolt bone book
bookcase bookmark boot bottle bouquet bowl box boy bracelet bracket branch bread brick bridge broom
brother brownie brush bucket bug building bulb bull bun bunny bus bush businessman butterfly button
cabin cable cactus cage cake calculator calf call camel camera camper can candle candy cap car card
carrot cart carton case cat caterpillar cell chain chair champion chapter character cheese cheetah
cherry chess chick chicken child chip chocolate choice chord chore circle citizen city class
classmate classroom client clock clown club coach coat coconut code coffee coin collection colony
color colour column combination comic competitor complaint component computation computer concert
cone container contestant cookbook cookie cop copy corner couch country course court cousin cow
coyote crab cracker craft crane crate crayfish crayon cricket crocodile crossing crow cube cucumber
cupcake customer cycle cylinder daisy dancer daughter deal debt deer delivery deposit design desk
diagonal diamond dice die digit dime dinner dinosaur dish district diver divisor doctor document dog
doll dolphin donkey donut door dot doughnut dove dragon drawer drawing dress drink driver drop drum
duck duckling eagle ear earring edge egg eggplant elective electron element elephant elf elm email
employee employer engine engineer envelope episode equation eraser error essay estate event exam
example exercise expense eye face facility factor family fan farm farmer fax feather feature female
fence ferry field figure file film finger fire firefighter firework fish flag flamingo flavor
flavour flight flock floor flower flute fly flyer folder follower football forest fork fox frame
friend frog fruit function game garage garden gate gem gentleman ghost gift giraffe girl glass globe
glove goal goat goose gown grade graduate grain grandchild grape graph grasshopper grocery group
guard guest guitar gumball gumdrop guppy gymnast hammer hamster hand handshake harmonica hat hawk
head helicopter helmet hen hexagon highway hippo hit hive hockey hole home horn horse hospital
hotdog hotel house human hurdle hurricane idea image individual ingredient insect instructor
instrument integer intersection interval invitation invoice iron island issue item jacket jar
jellybean jet jewel job jogger joke journal judge jug juice jump kangaroo kernel key keyboard kid
king kite kitten knife knight koala lab label ladder lady ladybug lake lamb lamp lane lap laptop
laser lawn lawyer layer leaf leaflet leg lemon lemonade lesson letter level librarian library
license lid light lighthouse lily line link lion list lizard llama loaf loan lobster lock locker log
logo lollipop lot lunch machine magazine magnet mailbox male mall man mango map marble mark marker
marshmallow match meal medal meeting melon member message metal minnow mirror mission mistake mitten
model molecule mom monkey monster moon morning mosquito motor motorcycle mountain mouse mouth move
movie muffin mug mushroom musician nail name napkin nation neck necklace necktie needle neighbor
nephew nest net neuron neutron newspaper nickel niece night node noodle note notebook novel number
nurse nut nutcracker oak occurrence octagon office officer olive onion opening operation opponent
option orange orchestra order ordering ostrich outcome outfit oven owl owner ox oyster package
packet pad page pail paint paintbrush painter painting palm pan pancake panda panel papaya paper
paperclip parade paragraph parcel parent park parrot participant partition partner party passenger
pastry patch path patient pattern payment pea peach peacock peanut pear pearl pebble pedestrian pen
pencil penguin pentagon people pepper performer permutation person pet petal petunia phase phone
photo photograph photographer pianist piano pick pickle picture pie piece pig pigeon piglet pill
pillow pilot pin pineapple pinecone pipe pirate pizza place plan planet plant plate player plot plum
plumber pocket poem point pole police polygon polyhedron pond pony pool popsicle population port
possibility postcard poster pot potato present prime princess print printer prize problem procedure
process professor program project proton puck pumpkin pup pupil puppy purse puzzle quadrilateral
quark queen question quilt quiz rabbit raccoon racer racket radio radish raisin rat ray reader
recipe record recruit rectangle referee region repair report request response restaurant result
reward ribbon rider ring river road robe robin robot rock rocket roll roof rook room rooster roots
rose route row ruler runner sack salad sale salesman salmon sample sandcastle sandwich sapling
saucer sausage saxophone scarf schedule scholarship school scientist scissor scoop scout screen
screw sculpture sea seal seashell season seat section seed seedling segment semester senior sentence
server service serving session set shape shareholder shark shed sheep sheet shelf shell shepherd
ship shirt shoe shop shopper shot shovel shrimp sibling side sign signal signature singer sink
sister skateboard skater skeleton skill skirt skunk slice sloth snack snail snake snowball snowflake
snowman soap sock soda sofa soldier solution son song soup species spectator spider spinner spokes
sponge spoon sport spot square squirrel stage stair stall stamp star state statement station statue
step stick sticker stocking stone stool stop store storm story strand strategy straw strawberry
stream street string stripe student style subject subset suit suitcase sunflower supporter surfer
survey survivor swan sweater sweet swimmer switch sword symbol table tablet tail tank tape target
task taxi teacher team teammate teapot teenager television tennis tent term terrace test text
theater theatre theme theorem thing ticket tie tiger tile time toad toast toddler toe token tomato
tool tooth toothbrush toothpick topping tourist towel tower town toy track tractor trader train
trainer traveler traveller tray tree trial triangle tribe trick tricycle trip troll trophy truck
trumpet tub tube tulip turkey turn turtle tv umbrella uncle unicorn uniform user vacation valley
value van variable vase vegetable vehicle version vertex victory video viewer village villager
violin violinist visit visitor volcano volunteer vote voter waffle wagon waiter walk wall wallet
walnut warehouse washer watch water watermelon wave way website wedding weed whale wheel whistle
widget wife win window wing winner wire wish wizard wolf woman wombat wood word worker workout worm
wrapper writer yak yogurt zebra zombie zeros zone zoo
""".split())

ADJECTIVES = frozenset("""
additional adult altogether annual apart apple available away baby bad banana baseball basketball
big black blue brown cherry chocolate clean cold complete consecutive daily deep different dirty
distinct empty entire extra favorite female fewer football free fresh full glass gold golden good
gray green grey hot huge identical individual large left lemon lime little long male math metal
monthly more needed new old orange paper peach pear pet pink plastic possible purple real red
regular remaining required real ripe rotten school science separate short silver small soccer sold
special such sweet tall tennis thick tiny total toy unique unused used vanilla weekly white whole
wide wooden work working yearly yellow young
""".split())
# fmt: on
