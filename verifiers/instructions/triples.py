"""Letter triples of English words, to tell words from letters in any order.

Statistics of 16,000 different words: those of GSM8K's training problems (openai/grade-school-math
3101c7d5, MIT) and of rlvr's own documentation.  An entry is two letters and all that may follow
them; ^ begins a word, $ ends it.
"""

from typing import Final

__all__ = ["FOLLOWING"]

FOLLOWING: Final[dict[str, frozenset[str]]] = {
    entry[:2]: frozenset(entry[2:])
    for entry in """
^aabcdefghijklmnpqrstuvwxyz ^babcefilmnoruy ^cabcdeghilmoprstuwxy ^daeijlmnoprtuvwxy
^eabcdefgiklmnopqrstuvxyz ^fabcdeilmnorstu ^gabcehilmnoprstuwyz ^habeimortuvyz
^iabcdefgjlmnoprstvwz ^jaeiosu ^kaeghijlmnoprstuwy ^labcefgilnortuxy ^mabceiklmoprsuy
^nabcdefghijklmnopqrstuvwxyz ^oabcdfhiklmnoprstuvwxyz ^pacefhilmopqrstuy ^qaqtuw
^rabdefhilmnosuy ^sacdeghiklmnopqrstuvwy ^tabdehiorsuvwy ^ubfklmnprstuv ^vaefhilmosu
^wabehikopry ^xaeity ^yadeiloruv ^zaehilorsuy aachnrst ab$abcdeilorsuwy ac$acehikloqrstuy
ad$abcdeghijlmnoprstuvwy ae$fglmorsz af$aeflorty ag$adeghilmnoprsu ah$aeimorsu
ai$acdgilmnprstvwyz aj$aeio ak$aefilorsu al$abcdefghiklmnoprstuvwyz am$abdeikmopstuyz
an$abcdeghiklnostuvwyz ao$lm ap$abdehiklopqrstuy aq$u ar$abcdefghijklmnopqrstuvwy
as$acdehiklmnopstuyz at$abcefhilmoprstuyz au$bcdglnrstxz avaeginoy aw$abehiklnprsy
ax$aeilostwy ay$abcdegilmnorstuz az$aeilouyz ba$bcdegiklmnrstxy bb$aeiloqy bc$lmo bdaiu
be$acdefghiklnrstvxy bf$ bi$abcdefgklnorstu bje blaeiouy bm$ai bn$b bo$abdgiklmnorstuvwxy
bp$rs bq$ braeiotuy bs$ceiot bt$aors bu$bcdfgilmnorstyz bwae by$ast ca$bcdefghiklmnprstuvy
cbr cc$aehilorsu cd$os ce$abcdehilmnprsty cgeir ch$abdeiklmnorstuy ci$adefilmnoprstuv cj$
ck$abdeghijlnopstuvwy claeiosuy cm$ae cneit co$abcdefghiklmnoprstuvwy cp$chpu cqu craeiouy
cs$ceiotv ct$aeghilmnorsuxy cubcdefilmprstu cwd cx$ cy$clnpr da$bcdefghiklmnprstuvwxy
db$alou dcahoru dd$aeilorsy de$abcdefghijlmnopqrstvwx dfailou dgaei dhio
di$abcdefgklmnoprstuvxz djiu dkai dlaeioy dm$aiouv dn$aeio do$bcdegiklmnoprstuvwxz dpahio
dqu dr$aeiouy ds$acehioty dt$aehiy duabcegklmnprst dvadei dwaio dx$ dy$begilnsw dzi
ea$bcdfghiklmnprstuvw eb$abeiorstu ec$acehiklorstuy ed$abdegilmnorstuwy
ee$bcdfghiklmnprstvwz ef$acefilorstu eg$aeghilmnorsuy ehaikouy ei$dfgklmnoprstv ejeu
ek$adeilnos el$abcdefghiklmoprstuvyz em$abefilmopsuy en$abcdefghijlmnorstuvwyz
eo$dfglmnprsuw ep$acdehiloprsty eq$u er$abcdefghijklmnoprstuvwy es$abcdehiklmnopstuwy
et$abcefhilmoprstuwyz eubegmnprst ev$aeioy ew$abdefhilnoprs ex$acehilopt ey$abcdejmnostwz
ez$eil fa$bcdehiklmnrstuvy fbeo fcan fd$as fe$abcdeilmnrstvw ff$aeilorsuy fga
fi$acdefglnorstvx fl$aeiouy fmet fn$ fo$acdlnorsuwxy fraeiouy fs$epy ft$bcehiorswy
fudelmnrst fwa fy$i ga$bcdegilmnprstuvz gbipy gc$d gdaeo ge$abcdehlmnoqrst gfi gg$aeiloprsy
gh$abeilnorstuw gi$abcdefglnorstuvz gl$aeiouy gm$ae gn$aeimosu go$adegilnorstv gpailors
gr$aeiopuy gs$ahilptv gthos guaeilmnoprsy gv$ gweir gy$mnp gzi ha$abcdegijklmnprstuvwyz
hbabfor hca hd$aor he$acdefilmnopqrstuvwxyz hfu hheo hi$abcdefghklmnopqrstuv hki hleioy
hm$aeos hn$aeinosuy ho$abcdegiklmnoprstuvw hpaiu hqu hr$aeimosuy hs$fht ht$abcefhilmnostuy
huabcfglmnprst hva hwae hy$bdelmnpsu hz$ ia$abghilmnprstz ib$abceiloru ic$acehiklmnoprstuy
id$adefgilnostuwy ie$cdfgklnrstvwz if$abefilotuy ig$aeghilmnorsu ihaou ii$an ijaks
ik$aeiklotuy il$abdefiklmostuvy im$abeimopsuz in$abcdefghijklmnopqrstuvwy io$bdglnrstux
ip$acefhilmoprstu iqu ir$abcdefgiklmoprstuwyz is$abcefghijklmnopqstuy it$abcehilmnorstuyz
iu$lms iv$aeioy iw$ai ix$aeit iya iz$aeimoz ja$cdfghiklmnprsvxyz jeabcdeflmnorstwz
ji$beglmnt jk$ joabcdeghiklnrsuy js$o ju$abdegijlmnprstvw jy$ ka$beghilmnprty kbaeiou kca
kdabo ke$abcdefiklmnprstuvwyz kfai kg$rs khalm ki$abcdeiklmnoprstw kj$a kkai kl$aeioy km$ah
kn$aeio ko$abdfhilmnorstu kpaehilo kraeiy ks$beghilmotuw kt$aor ku$blmprs kvi kw$aehi
ky$aelrs la$bcdfghiklmnoprstuvwxyz lb$aeiosuy lc$aehimoru ld$aefilnors
le$abcdefgilmnopqrstvwxy lf$egiloruw lg$aeio lhio li$abcdefghjklmnopqstuvxyz lk$abeist
ll$abcdeimnopsuwy lm$aeios ln$eu lo$abcdegilmnoprstuvwyz lp$aefhiost lr$eoy ls$abeiopt
lt$adehiorsuy lu$abcdefgiklmnprstx lvaeir lwa lxw ly$abcdefiklmnoprstwz lz$o
ma$abcdeghijklmnprstuxyz mb$abdeiloprstu mcacdghknpq mde me$acdeghklmnoprstwxy mfdeou mh$ao
mi$abcdegklmnorstuxyz mkdi ml$abeily mm$aeiouy mn$as mo$abcdefhijklmnoprstuvwxz
mp$abefghiklmorstuy mr$is ms$egiortu mt$a mu$cdefglmnprst mv$ my$ars mzai
na$abcdfghiklmnoprstuvwxy nb$aceiloruy nc$acehijlorstuy nd$abcdefijklmopqrstuwy
ne$acdefgiklmnopqrstuvwxyz nf$aeilortu ng$abdefhilnorstuw nh$aeiou
ni$abcdefgjklmnopqrstuvxyz nj$aeiouy nk$aehijlnorstwy nl$aeilouy nmaceiorsuy nn$aegiosuy
no$abcdefgilmnopqrstuvw np$aehiloru nqu nraehiouy ns$acefhiklmnopstuwy nt$abdefhilmorsuwy
nu$acdefgilmnoprstx nv$aeilosu nwaehiory nx$a ny$acdelmotuvw nz$aeio oa$cdfhklmnprstvx
ob$abeijlostuy oc$aceghikostu od$abcdeghiklnorsuwyz oe$bflmnstvy of$aefist og$aeghinoprsuy
ohaeimno oi$cdlnrst ojaeis ok$bcefikmosuy ol$abcdefgiklmopstuvy om$abcefilmopsy
on$abcdefgijklmnorstuvwxyz oo$dfgiklmnoprstv op$abcehiklmoprstuy oqau
or$abcdefghijklmnoprstuvwy os$abcehilmpqstu ot$abdehilmoprst ou$abcdfgilnpqrstv ov$aeiy
ow$abcdefghilnorsty ox$acefiwy oy$acdefimos oz$eiz pa$abcdgijklmnoprstuvwy pbaeo pc$ao
pdaior pe$abcdefgilnoprstwyz pfeiru pg$r ph$adeilnorsuy pi$acdegklmnoprstvxz pkei plaeiouy
pm$aeu pno po$cdegiklmnoprstuvwx pp$aeilorsuy pq$ pr$aeiou ps$aeiotuy pt$aehilosuy
pu$bcdfglmnprstz pwa px$ py$adiprt qa$ ql$ qqu qrt qt$ quaeio qwe ra$bcdefghijklmnpqrstuvwyz
rb$aeilnorsuy rc$acehiklorstuy rd$abcefhilnorstuwy re$abcdefghijklmnopqrstuvwxyz
rf$abeilostu rg$aeilnoprsuvy rhaeiouy ri$abcdefghklmnopqstuvxz rj$aos rk$abdeilnopsuwy
rl$adefilostvy rm$acefhilosuy rn$aefgimostuy ro$abcdefghijklmnopqrstuvwxyz rp$aehilorstu rqu
rr$aeinosuy rs$acdehiklnoptuvy rt$abcdefghilmnoprsuwyz ru$abcdefgilmnprstz rvaei rwaeir
ry$abcdeilnopstvw rza sa$abcdfghiklmnprstuvwxy sb$aeiou sc$aehiloru sd$aip
se$abcdefghilmnpqrstuvwxy sf$aeiouy sg$inu sh$abceilmnoprtuwy si$abcdefglmnoprstuvxz sjo
sk$aeistuy sl$aeiouy sm$aeios sn$aeiouy so$acdfiklmnoprstuwy sp$abehilorsu sqlru sropu
ss$aefhilmoruwy st$abcdehilmnorsuwy su$abcdefgiklmnprstvz sv$gip swaeiou sy$cdlmnrs szu
ta$bcdefghiklmnpqrstuvxy tbafiorsu tc$ahlo td$eio te$abcdefgilmnoprstuvwx tf$ilou tg$ar
th$abcdefhilmopqrstuwy ti$abcdefgklmnopqrstuvz tl$aeiuy tmaeil tn$eiu
to$abcdefgijklmnoprstuvwxy tp$hlrstux tr$aeilmopuy ts$abcehimoptuwy tt$aehilnoprsuwy
tu$abcdefilmnprstwy tvs twaehio tx$ ty$aefilmnprs tz$aei ua$bcdfghklmnrst
ub$abcdeijlmoprstwy ucacehikstuy ud$adegioprswy ue$bdeglnrstu ufafo ug$abeghiosu
ui$cdeglnprstvz uju ukaeiou ul$abcdefgiklmopstuy um$abefimnopsu un$abcdefghiklmnoprstuwz
uo$inrtuy up$abcdefghilnoprstuwy uqu ur$abcdefgiklmnopqrstuvy us$abcdehiklpstuy
ut$abcdefghilnoprstuy uuim uv$eilsy uwae ux$u uy$aeis uz$aeiyz va$bcdgilmnprst vd$s
ve$acdghilmnrstuwy vf$o vg$ vhs vi$abcdeghklnoprstv vlalo vma vn$ vo$cdiklnrtuwy vp$e vr$
vs$ vul vy$as wa$dfgiklmnprstvxy wb$aeo wca wd$aefir we$abdeilnprstv wfailo wgi wh$aeioy
wi$cdfgklmnprstz wk$eis wl$efisy wn$aefhilmpstw wo$gklmnoru wpamo wraeioy ws$ceioptu wtho
wum wy$aen xa$bcgmnstv xc$aehilu xe$cdilnors xfo xhai xi$acdemnst xle xodnp xp$aeilor xsipt
xt$abehilmorsuy xur xw$eo xy$g ya$bcghlmnoprstw ybaeoru yc$aehl yd$aeinor ye$adeilnorst
yfirt ygeoru yien yja yka yl$aeilov ym$abemnops yn$acdeilnot yo$fgklnqrtuv ypehiort yr$aotu
ys$aceilost ytehior yuagklmnprst yvaeio ywaeho yx$ yzai za$bchilnprsty ze$bdklnorst zha
zi$aegklmnoptz zl$eio zmi zo$elmnor zri zsh zu$bcr zy$gx zz$aeily
""".split()
}
"""What may follow two letters."""
